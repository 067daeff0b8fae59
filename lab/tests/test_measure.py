"""Runs that go on where they stopped, and what a finished cell depends on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplus import InputError
from hplus.evaluate.data import data_hash, demo_folder, read_beir, sample
from hplus.units.terms import Terms
from hplus_lab.clock import EDITION
from hplus_lab.config import System, read_config
from hplus_lab.experiment import Inputs
from hplus_lab.kinds import KINDS
from hplus_lab.measure import Task, measure, run_config
from hplus_lab.protocols import load

NONE = Inputs()


def demo(queries: int = 3) -> Task:
    return Task("demo", "test", sample(read_beir(demo_folder("en")), queries, 13))


def config(folder: Path, tiny: Path) -> Path:
    path = folder / "table.toml"
    path.write_text(
        'name = "demo"\nprotocols = ["full-corpus", "pool-sensitivity"]\n'
        'sets = ["demo-en:test", "demo-zh:test"]\n'
        f'[[systems]]\nname = "tiny"\nmodel = "{tiny}"\n'
        f'[[systems]]\nname = "words"\nmodel = "{tiny}"\nunits = "words"\n'
    )
    return path


def all_cells(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("cells/*.json"))}


@pytest.mark.parametrize(
    ("last", "complaint"),
    [("broad-deployed", "give --terms FILE"), ("fusion", "give --terms FILE"),
     ("projection", "has no token projection")],
)  # fmt: skip
def test_what_a_later_protocol_lacks_is_reported_first(
    tiny_folder: Path, tmp_path: Path, last: str, complaint: str
) -> None:
    wanted = read_config(config(tmp_path, tiny_folder))
    wanted = replace(wanted, protocols=("full-corpus", last), limit=2)
    with pytest.raises(InputError, match=complaint):
        list(run_config(wanted, demo_folder("en").parent, tmp_path / "cache", NONE, print))
    assert not (tmp_path / "cache").exists()


def test_a_run_that_was_stopped_goes_on(tiny_folder: Path, tmp_path: Path) -> None:
    """Resumed and uninterrupted runs give identical files; finished cells are not run again."""
    wanted = replace(read_config(config(tmp_path, tiny_folder)), limit=4)
    data = demo_folder("en").parent
    notes: list[str] = []
    whole = list(run_config(wanted, data, tmp_path / "whole", NONE, notes.append))
    assert len(notes) == 2 * 2 * 2
    stopped = run_config(wanted, data, tmp_path / "parts", NONE, lambda _: None)
    next(stopped)
    stopped.close()
    first = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "parts/cells").iterdir()}
    assert len(first) == 2 * 2  # two sets, each with its times
    again = list(run_config(wanted, data, tmp_path / "parts", NONE, lambda _: None))
    assert all_cells(tmp_path / "parts") == all_cells(tmp_path / "whole")
    for name, changed in first.items():
        assert (tmp_path / "parts/cells" / name).stat().st_mtime_ns == changed
    for (p, s, cells, _), (q, t, others, _) in zip(whole, again, strict=True):
        assert (p, s) == (q, t)
        for one, other in zip(cells, others, strict=True):
            assert replace(one, lines={}) == replace(other, lines={})
            assert one.query_ids == other.query_ids
            assert len(one.query_ids) == 4


def cells(folder: Path) -> int:
    return len(list((folder / "cells").glob("*.json")))


def test_a_cell_of_another_model_or_data_is_another_cell(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol, task, system = load("full-corpus"), demo(), System("x", str(tiny_folder))
    one, _ = measure(system, protocol, task, tmp_path, NONE)
    words = replace(system, settings={"units": "words"})
    two, _ = measure(words, protocol, task, tmp_path, NONE)
    line = "phrase, full corpus"
    assert not np.array_equal(one.lines[line].values, two.lines[line].values)
    data = task.data
    less = replace(data, query_ids=data.query_ids[:2], queries=data.queries[:2])
    assert data_hash(less) != data_hash(data)
    three, _ = measure(system, protocol, replace(task, data=less), tmp_path, NONE)
    assert len(three.query_ids) == 2
    assert cells(tmp_path) == 3
    measure(system, replace(protocol, macros=("all",)), task, tmp_path, NONE)
    assert cells(tmp_path) == 4
    measure(replace(system, name="y"), protocol, task, tmp_path, NONE)
    assert cells(tmp_path) == 5
    monkeypatch.setitem(KINDS, "full-corpus", replace(KINDS["full-corpus"], edition=99))
    measure(system, protocol, task, tmp_path, NONE)
    assert cells(tmp_path) == 6
    measure(system, protocol, task, tmp_path, Inputs(Terms(["unused"])))
    assert cells(tmp_path) == 6


def test_a_cell_with_other_terms_or_dev_data_is_another_cell(
    tiny_folder: Path, tmp_path: Path
) -> None:
    protocol, task, system = load("fusion"), demo(), System("x", str(tiny_folder))
    protocol = replace(protocol, grid=(1.0,))
    terms, dev = Terms(["type 2 diabetes"]), (("a", task.data),)
    given = Inputs(terms, dev)
    found, _ = measure(system, protocol, task, tmp_path, given)
    assert found.terms == terms.fingerprint
    assert cells(tmp_path) == 1
    for other in (
        replace(given, terms=Terms(["blood pressure"])),
        replace(given, dev=(("b", demo(2).data),)),
    ):
        before = cells(tmp_path)
        measure(system, protocol, task, tmp_path, other)
        assert cells(tmp_path) == before + 1


def test_times_are_apart(tiny_folder: Path, tmp_path: Path) -> None:
    task, protocol = demo(), load("full-corpus")
    system = System(str(tiny_folder), str(tiny_folder))  # a path for a name: one file all the same
    cell, times = measure(system, protocol, task, tmp_path, NONE)
    assert list(times) == list(cell.lines)
    assert all(value > 0 for own in times.values() for value in own.values())
    (path,) = (tmp_path / "cells").glob("*.json")
    written = path.read_text()
    assert "_ms" not in written
    assert json.loads(path.with_suffix(".times").read_text()) == {
        "edition": EDITION,
        "times": times,
    }
    path.with_suffix(".times").unlink()
    _, again = measure(system, protocol, task, tmp_path, NONE)  # timed again, the cell stays
    assert set(again) == set(times)
    for other in ('{"cut sho', '{"edition": 1, "times": {}}', '{"phrase: p50_ms": 1.0}', "[]"):
        path.with_suffix(".times").write_text(other)
        _, again = measure(system, protocol, task, tmp_path, NONE)
        assert set(again) == set(times)
    assert path.read_text() == written


@pytest.mark.parametrize(
    ("protocol", "given", "complaint"),
    [
        ("broad-deployed", NONE, "give --terms FILE"),
        ("fusion", NONE, "give --terms FILE"),
        ("fusion", Inputs(Terms(["type 2 diabetes"])), "give --dev DIR:SPLIT"),
        ("shared-pool", NONE, "shared-pool: bge-small-en-v1.5 needs"),
        ("as-shipped", NONE, "as-shipped: bge-small-en-v1.5 needs"),
        ("own-dense", NONE, "own-dense: bge-small-en-v1.5 needs"),
        ("projection", NONE, "has no token projection"),
    ],
)
def test_what_is_missing_is_reported_before_encoding(
    tiny_folder: Path, tmp_path: Path, protocol: str, given: Inputs, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        measure(System("x", str(tiny_folder)), load(protocol), demo(), tmp_path, given)
    assert not list(tmp_path.iterdir())


def test_a_shared_pool_without_a_cross_encoder(tiny_folder: Path, tmp_path: Path) -> None:
    protocol = replace(
        load("shared-pool"), rankers=("ms-marco-minilm-l12-v2",), sources=("global",)
    )
    with pytest.raises(InputError, match="reads pairs of texts"):
        measure(System("x", str(tiny_folder)), protocol, demo(), tmp_path, NONE)


def test_sampling_is_seeded_and_keeps_the_order() -> None:
    data = read_beir(demo_folder("en"))
    some = sample(data, 10, 13)
    assert some.query_ids == sample(data, 10, 13).query_ids
    assert some.query_ids != sample(data, 10, 42).query_ids
    assert [name for name in data.query_ids if name in some.query_ids] == some.query_ids
    assert sample(data, 0, 13) is data
    assert sample(data, 10_000, 13) is data
