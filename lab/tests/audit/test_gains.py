"""Gains of queries: their files, and their correlation with boundary F1 by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hplus import InputError
from hplus_lab import cell as cells
from hplus_lab.audit import Item, Marks
from hplus_lab.audit.gains import gain_correlation, read_gains
from hplus_lab.cell import Cell
from hplus_lab.cost import Cost
from hplus_lab.line import Line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "expected a JSON object"),
        ("{}", "expected a JSON object"),
        ("{", "is not JSON"),
        ('{"q": "much"}', "expected a number as the gain of 'q', got \"much\""),
        ('{"q": NaN}', "the gain of 'q', got NaN"),
        ('{"q": true}', "the gain of 'q', got true"),
    ],
)
def test_gains_are_checked(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "gains.json"
    file.write_text(content)
    with pytest.raises(InputError, match=re.escape(message)):
        read_gains(file)


def test_gains_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_gains(tmp_path / "gains.json")


def test_gains_of_a_cell_are_phrase_less_token(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    values = {"phrase": np.array([0.5, 0.25]), "token": np.array([0.25, 0.5])}
    lines = {name: Line(name, own, Cost(0, 0, 0, 0)) for name, own in values.items()}
    cell = Cell("broad-deployed", "", "s", "f", "", "t", "test", 9, ("q1", "q2"), "d", "k", lines)
    cells.write(path, cell)
    assert read_gains(path) == {"q1": 0.25, "q2": -0.25}
    cells.write(path, replace(cell, protocol="other", lines={"phrase": lines["phrase"]}))
    with pytest.raises(InputError, match="a cell of other without a line 'token'"):
        read_gains(path)


def queries(*names: str) -> list[Item]:
    marks = {"A": Marks((), ())}
    return [Item(name, f"text of {name}", marks, query_id=name) for name in names]


def test_spearman_by_hand() -> None:
    items = queries("a", "b", "c", "d")
    # Ranks 1 2 3 4 against 2 1 4 3: four differences of 1; 1 - 6 * 4 / (4 * 15).
    gains = {"a": 0.2, "b": 0.1, "c": 9.0, "text of d": 0.3}
    values = np.array([0.1, 0.2, 0.5, 0.9])
    found = gain_correlation(items, values, gains)
    assert (found.items, found.rho) == (4, pytest.approx(0.6))
    assert 0 < found.p < 1
    falling = {name: -value for name, value in zip("abcd", values, strict=True)}
    assert gain_correlation(items, values, falling).rho == pytest.approx(-1)


def test_which_items_have_a_gain() -> None:
    items = queries("a", "b", "c", "d", "e")
    values = np.array([0.1, 0.2, np.nan, 0.4, 0.5])
    found = gain_correlation(items, values, {"a": 1, "b": 2, "c": 3, "d": 4})
    assert (found.items, found.rho) == (3, pytest.approx(1))
    # The id goes before the text.
    both = {"a": 1.0, "b": 2.0, "d": 4.0, "text of a": 99.0}
    assert gain_correlation(items, values, both).rho == pytest.approx(1)
    for gains in ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 1.0, "d": 1.0}):
        assert math.isnan(gain_correlation(items, values, gains).rho)
    with pytest.raises(InputError, match="none of the 1 gains is of a query of this audit"):
        gain_correlation(items, values, {"z": 1.0})
