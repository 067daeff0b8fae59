"""Cells on disk, what may be compared, and runs that go on where they stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplus import InputError
from hplus.evaluate import results
from hplus.evaluate.config import System, read_config
from hplus.evaluate.cost import Cost, bytes_of
from hplus.evaluate.data import demo_folder, read_beir
from hplus.evaluate.lab import Line
from hplus.evaluate.protocol import Contrast, load
from hplus.evaluate.results import Cell, check_comparable, contrasts, macro, mean_cost, read, write
from hplus.evaluate.run import measure, run_config, sample
from hplus.evaluate.statistics import holm
from hplus.units.terms import Terms


def cell(task: str = "a", **changes: object) -> Cell:
    lines = {
        "ours": Line("ours", np.array([0.5, 1.0, 0.25]), Cost(10, 5120, 3, 1e6), {"recall": 0.5}),
        "theirs": Line("theirs", np.array([0.5, 0.5, 0.0]), Cost(20, 10240, 4, 2e6)),
        "free": Line("free", np.array([0.0, 0.0, 1.0])),
    }
    usual = Cell("p", "ab" * 32, "s", "f", "", task, "test", 9, ("1", "2", "3"), "d", "k", lines)
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_a_cell_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "cell.json"
    write(path, cell())
    found = read(path)
    assert replace(found, lines={}) == replace(cell(), lines={})
    for name, line in cell().lines.items():
        np.testing.assert_array_equal(found.lines[name].values, line.values)
        assert (found.lines[name].cost, found.lines[name].facts) == (line.cost, line.facts)
    once = path.read_bytes()
    write(path, found)
    assert path.read_bytes() == once
    assert [file.name for file in path.parent.iterdir()] == ["cell.json"]


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 9}', '{"format": 1}'])
def test_a_damaged_cell_is_told(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cell.json"
    path.write_text(damage)
    with pytest.raises(InputError, match=r"cell\.json .*delete it"):
        read(path)


def test_values_must_fit_the_queries(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    write(path, cell(query_ids=("1",)))
    with pytest.raises(InputError, match="values do not fit its queries"):
        read(path)


def test_two_protocols_are_never_compared() -> None:
    other = cell("b", protocol="q", protocol_hash="cd" * 32)
    with pytest.raises(InputError, match=r"p \(abababababab\) and q \(cdcdcdcdcdcd\) are two"):
        check_comparable([cell(), other])
    with pytest.raises(InputError, match="are two protocols"):
        contrasts([cell(), other], [Contrast("ours", "theirs")])


@pytest.mark.parametrize("change", [{"data_hash": "e"}, {"query_ids": ("1", "2", "4")}])
def test_other_data_is_never_compared(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="a: s and t were measured on other data"):
        check_comparable([cell(), cell(system="t", **change)])


def test_macros_and_costs_give_every_task_the_same_weight() -> None:
    longer = cell("b", query_ids=tuple("12345"), lines={
        "ours": Line("ours", np.array([0.0, 0, 0, 0, 0.5]), Cost(30, 100, 5, 0)),
    })  # fmt: skip
    found = macro([cell(), longer], "ours")
    assert found.mean == pytest.approx((1.75 / 3 + 0.1) / 2)
    assert found.low <= found.mean <= found.high
    assert mean_cost([cell(), longer], "ours") == Cost(20, 2610, 4, 5e5)
    assert mean_cost([cell()], "free") is None
    with pytest.raises(InputError, match="b has no line 'theirs'"):
        macro([cell(), longer], "theirs")


def test_holm_is_within_a_family() -> None:
    planned = [
        Contrast("ours", "theirs", "first"),
        Contrast("ours", "free", "first"),
        Contrast("theirs", "free", "second"),
        Contrast("ours", "wider", "second"),  # a width that the model does not have
    ]
    found = contrasts([cell()], planned)
    assert [contrast for contrast, *_ in found] == planned[:3]
    raw = [difference.p for _, difference, _ in found]
    assert [p for *_, p in found] == [*holm(raw[:2]), *holm(raw[2:])]
    assert found[0][1].mean == pytest.approx(0.25)


def test_a_line_that_only_some_tasks_have_is_an_error() -> None:
    short = cell("b", lines={"ours": cell().lines["ours"]})
    with pytest.raises(InputError, match="b lacks 'ours' or 'theirs'"):
        contrasts([cell(), short], [Contrast("ours", "theirs")])


def test_bytes() -> None:
    assert bytes_of(288.59, 128, "f16") / 1000 == pytest.approx(73.9, abs=0.05)
    assert bytes_of(16, 128, "int8") == 16 * 130


def config(folder: Path, tiny: Path, extra: str = "") -> Path:
    path = folder / "table.toml"
    path.write_text(
        'name = "demo"\nprotocols = ["full-corpus", "pool-sensitivity"]\n'
        'sets = ["demo-en:test", "demo-zh:test"]\n'
        f'{extra}[[systems]]\nname = "tiny"\nmodel = "{tiny}"\n'
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
def test_what_a_later_protocol_lacks_is_told_first(
    tiny_folder: Path, tmp_path: Path, last: str, complaint: str
) -> None:
    wanted = read_config(config(tmp_path, tiny_folder))
    wanted = replace(wanted, protocols=("full-corpus", last), limit=2)
    with pytest.raises(InputError, match=complaint):
        list(run_config(wanted, demo_folder("en").parent, tmp_path / "cache", None, print))
    assert not (tmp_path / "cache").exists()


def test_a_run_that_was_stopped_goes_on(tiny_folder: Path, tmp_path: Path) -> None:
    """Resumed and uninterrupted runs give identical files; finished cells are not run again."""
    wanted = replace(read_config(config(tmp_path, tiny_folder)), limit=4)
    data = demo_folder("en").parent
    notes: list[str] = []
    whole = list(run_config(wanted, data, tmp_path / "whole", None, notes.append))
    assert len(notes) == 2 * 2 * 2
    stopped = run_config(wanted, data, tmp_path / "parts", None, lambda _: None)
    next(stopped)
    stopped.close()
    first = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "parts/cells").iterdir()}
    assert len(first) == 2 * 2  # two sets, each with its times
    again = list(run_config(wanted, data, tmp_path / "parts", None, lambda _: None))
    assert all_cells(tmp_path / "parts") == all_cells(tmp_path / "whole")
    for name, changed in first.items():
        assert (tmp_path / "parts/cells" / name).stat().st_mtime_ns == changed
    for (p, s, cells, _), (q, t, others, _) in zip(whole, again, strict=True):
        assert (p, s) == (q, t)
        for one, other in zip(cells, others, strict=True):
            assert replace(one, lines={}) == replace(other, lines={})
            assert one.query_ids == other.query_ids
            assert len(one.query_ids) == 4


def test_a_cell_of_another_model_or_data_is_another_cell(tiny_folder: Path, tmp_path: Path) -> None:
    data = sample(read_beir(demo_folder("en")), 3, 13)
    protocol = load("full-corpus")
    one, _ = measure(System("x", str(tiny_folder)), protocol, "demo", data, tmp_path)
    two, _ = measure(
        System("x", str(tiny_folder), {"units": "words"}), protocol, "demo", data, tmp_path
    )
    assert not np.array_equal(one.lines["phrase, full corpus"].values,
                              two.lines["phrase, full corpus"].values)  # fmt: skip
    less = replace(data, query_ids=data.query_ids[:2], queries=data.queries[:2])
    assert results.data_hash(less) != results.data_hash(data)
    three, _ = measure(System("x", str(tiny_folder)), protocol, "demo", less, tmp_path)
    assert len(three.query_ids) == 2
    assert len(list((tmp_path / "cells").glob("*.json"))) == 3


def test_sampling_is_seeded_and_keeps_the_order() -> None:
    data = read_beir(demo_folder("en"))
    some = sample(data, 10, 13)
    assert some.query_ids == sample(data, 10, 13).query_ids
    assert some.query_ids != sample(data, 10, 42).query_ids
    assert [name for name in data.query_ids if name in some.query_ids] == some.query_ids
    assert sample(data, 0, 13) is data
    assert sample(data, 10_000, 13) is data


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('name = "demo"\n', ""), "lacks 'name'"),
        (("full-corpus", "full"), "protocol 'full' asked; known"),
        (("demo-en:test", "demo-en"), "set 'demo-en'; FOLDER:SPLIT is expected"),
        (('name = "tiny"\n', ""), "a system has a name"),
        (('name = "demo"', 'name = "demo"\ncolour = 1'), "unknown 'colour'"),
        (('name = "demo"', "name = demo"), "is not TOML"),
        (('name = "demo"', 'name = "demo"\nlimit = "a"'), "limit = 'a'; a number of 0 or more"),
        (('name = "demo"', 'name = "demo"\nlanguages = "en"'), "a table of languages"),
        (('name = "demo"', 'name = "demo"\nseen = ["demo-em"]'), "seen names .*demo-em"),
        (('name = "demo"', 'name = "demo"\nseen = "demo-en"'), "a list is expected"),
        (('name = "demo"', 'name = "demo"\ndev = [1]'), "a list of texts is expected"),
        (('"demo-zh:test"', '"demo-en:test"'), "named more than once"),
        (('"demo-zh:test"', '"mine:test"'), r"the language of \['mine'\] is not known"),
        (('name = "tiny"\n', 'name = "tiny"\nmodel = 3\n[[systems]]\nname = "b"\n'), "no text"),
        (('name = "tiny"\n', 'name = "tiny"\n[[systems]]\nname = "tiny"\n'), "two systems"),
        (('name = "tiny"\n', 'name = "tiny"\nlong = "cut"\n'), "leave `long` out"),
    ],
)
def test_mistakes_in_a_config(
    tiny_folder: Path, tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    path = config(tmp_path, tiny_folder)
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(InputError, match=complaint):
        read_config(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_config(tmp_path / "gone.toml")


def test_times_are_apart(tiny_folder: Path, tmp_path: Path) -> None:
    data = sample(read_beir(demo_folder("en")), 3, 13)
    system = System(str(tiny_folder), str(tiny_folder))  # a path for a name: one file all the same
    cell, times = measure(system, load("full-corpus"), "d", data, tmp_path)
    assert list(times) == list(cell.lines)
    assert all(value > 0 for own in times.values() for value in own.values())
    written = next((tmp_path / "cells").glob("*.json")).read_text()
    assert "_ms" not in written
    kept = json.loads(next((tmp_path / "cells").glob("*.times")).read_text())
    assert kept == {"edition": 3, "times": times}
    next((tmp_path / "cells").glob("*.times")).unlink()
    _, again = measure(system, load("full-corpus"), "d", data, tmp_path)  # measured, the cell stays
    assert set(again) == set(times)
    for other in ('{"cut sho', '{"edition": 1, "times": {}}', '{"phrase: p50_ms": 1.0}', "[]"):
        next((tmp_path / "cells").glob("*.times")).write_text(other)
        _, again = measure(system, load("full-corpus"), "d", data, tmp_path)
        assert set(again) == set(times)
    assert next((tmp_path / "cells").glob("*.json")).read_text() == written


@pytest.mark.parametrize(
    ("protocol", "complaint"),
    [
        ("broad-deployed", "give --terms FILE"),
        ("fusion", "give --terms FILE"),
        ("shared-pool", "shared-pool: bge-small-en-v1.5 needs"),
    ],
)
def test_what_is_missing_is_told_before_encoding(
    tiny_folder: Path, tmp_path: Path, protocol: str, complaint: str
) -> None:
    data = read_beir(demo_folder("en"))
    with pytest.raises(InputError, match=complaint):
        measure(System("x", str(tiny_folder)), load(protocol), "demo", data, tmp_path)
    assert not list(tmp_path.iterdir())


def test_fusion_without_dev_data(tiny_folder: Path, tmp_path: Path) -> None:
    data = read_beir(demo_folder("en"))
    with pytest.raises(InputError, match="give --dev DIR:SPLIT"):
        measure(
            System("x", str(tiny_folder)),
            load("fusion"),
            "demo",
            data,
            tmp_path,
            terms=Terms(["type 2 diabetes"]),
        )
    assert not list(tmp_path.iterdir())
