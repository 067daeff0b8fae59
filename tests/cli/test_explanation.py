"""Explanations on terminals of any width: wrapped at word ends, under their own beginning."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from hplus import HPlus
from hplus.cli.explanation import print_explanation

Run = Callable[..., tuple[int, str, str]]

QUERY = "metformin dose for adults with type 2 diabetes, chronic kidney disease and heart failure"
TEXT = (
    "In adults with type 2 diabetes and an eGFR of 30 to 45, metformin is halved to 500 mg twice a "
    "day; below 30 it is stopped. " + "Nothing in this sentence matters here. " * 20 + "Patients "
    "with heart failure and chronic kidney disease are seen by both clinics."
)


def printed(model: HPlus, columns: int) -> str:
    written = io.StringIO()
    out = Console(width=columns, file=written, soft_wrap=True, highlight=False, markup=False)
    scores = model.score(QUERY, [TEXT], explain=True)
    assert scores.explanations is not None
    print_explanation(QUERY, TEXT, scores.explanations[0], "1  doc", out)
    return written.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_fit_and_break_between_words(mini: HPlus, columns: int) -> None:
    narrow, wide = printed(mini, columns), printed(mini, 1000)
    assert max(map(len, narrow.splitlines())) <= columns
    assert narrow.split() == wide.split()  # no word is divided
    starts = {"1  doc": 8, "query": 10, "document": 10, "exact": 10}
    indent = 0
    for line in narrow.splitlines()[1:]:
        if line.startswith(" " * 8):
            assert len(line) - len(line.lstrip()) == indent, line
            continue
        named = [width for name, width in starts.items() if line.startswith(name)]
        indent = named[0] if named else 22
    assert narrow.count("\n") > wide.count("\n")


@pytest.mark.parametrize("model", ["mini", "small"])
def test_the_document_is_shown_round_its_matches(
    model: str, request: pytest.FixtureRequest
) -> None:
    """Also where a budget merged all diseases into one unit."""
    shown = printed(request.getfixturevalue(model), 1000).splitlines()
    (document,) = (line for line in shown if line.startswith("document"))
    for match in ("type 2 diabetes", "metformin", "heart failure", "chronic kidney disease"):
        assert match in document
    assert len(document) < 330


def test_the_figures_add_up_as_printed(run: Run) -> None:
    _, out, _ = run("score", QUERY, TEXT, "--explain")
    ((fused, *shares),) = re.findall(
        r"fused (\S+) = global (\S+) \+ phrase (\S+) \+ lexical (\S+)", out
    )
    why = out[out.index("= global") :]  # after the table of scores
    thousandths = [round(1000 * float(share)) for share in shares]
    assert sum(thousandths) == round(1000 * float(fused))
    gave = [float(n) for n in re.findall(r"^ +(\d\.\d{3})  [ █]", why, re.MULTILINE)]
    assert round(1000 * sum(gave)) == thousandths[1]
    assert gave[:-1] == sorted(gave[:-1], reverse=True)  # the last line has the function words
    exact = re.search(r"^exact (.*)", out, re.MULTILINE | re.DOTALL)
    assert exact is not None
    assert round(1000 * sum(map(float, re.findall(r"\d\.\d{3}", exact[1])))) == thousandths[2]


def test_a_page_is_written(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "why.html"
    code, out, err = run("score", "type 2 diabetes", "type 2 <b>", "heart", "--html", target)
    assert (code, "fused" in out) == (0, True)
    assert err == f"{target}: 2 documents explained\n"
    page = target.read_text()
    assert page.count("<section>") == 2
    assert "type 2 &lt;b&gt;" in re.sub("</?mark[^>]*>", "", page)
    assert "query  " not in out  # the terminal shows them with --explain
