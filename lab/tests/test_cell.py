"""Cells on disk, and what may be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplus import InputError
from hplus.evaluate.statistics import holm
from hplus_lab.cell import Cell, check_comparable, check_shared, contrasts, macro, read, write
from hplus_lab.cost import Cost
from hplus_lab.line import Line
from hplus_lab.protocol import Contrast


def cell(task: str = "a", **changes: object) -> Cell:
    lines = {
        "ours": Line(
            "ours", np.array([0.5, 1.0, 0.25]), Cost(10, 5120, 3, 1e6), {"x": 4}, {"recall": 0.5}
        ),
        "theirs": Line("theirs", np.array([0.5, 0.5, 0.0]), Cost(20, 10240, 4, 2e6)),
        "free": Line("free", np.array([0.0, 0.0, 1.0]), Cost(0, 0, 1, 1)),
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
        for part in ("cost", "at", "facts"):
            assert getattr(found.lines[name], part) == getattr(line, part)
    once = path.read_bytes()
    write(path, found)
    assert path.read_bytes() == once
    assert [file.name for file in path.parent.iterdir()] == ["cell.json"]


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 9}', '{"format": 2}'])
def test_a_damaged_cell_is_reported(tmp_path: Path, damage: str) -> None:
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
    with pytest.raises(InputError, match="a: s and t were measured on different data"):
        check_comparable([cell(), cell(system="t", **change)])


def test_shared_pools_hold_the_same_candidates() -> None:
    check_shared([cell(), cell("b", pool_hash="x"), cell(system="t")])
    with pytest.raises(InputError, match=r"a: s and t ranked different pools \(k, x\)"):
        check_shared([cell(), cell(system="t", pool_hash="x")])


def test_macros_give_every_task_the_same_weight() -> None:
    longer = cell("b", query_ids=tuple("12345"), lines={
        "ours": Line("ours", np.array([0.0, 0, 0, 0, 0.5]), Cost(30, 100, 5, 0)),
    })  # fmt: skip
    found = macro([cell(), longer], "ours")
    assert found.mean == pytest.approx((1.75 / 3 + 0.1) / 2)
    assert found.low <= found.mean <= found.high
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
