"""Protocols are frozen texts: each prints as its own specification, and mistakes are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hplus import InputError
from hplus_lab import protocols
from hplus_lab.protocol import Contrast
from hplus_lab.protocols import load, names, parse

MINIMAL = 'name = "x"\nquestion = "?"\nkind = "views"\n'
EXACT = (
    'name = "x"\nquestion = "?"\nkind = "{}"\ncounts = "exact"\nbudgets = [{}]\n'
    'sides = ["{}"]\ngroupings = [{}]\n'
)


# Results carry these hashes: a change here is a change of what was measured.
HASHES = {
    "ablations": "238d3072174b",
    "ablations-16": "c599f39723d4",
    "as-shipped": "b5289d467392",
    "as-shipped-bm25": "2bc9f342ace9",
    "broad-deployed": "6a532616b2ec",
    "budgets": "74b8d1da2c8b",
    "dimensional": "dce236d8a638",
    "exact-count": "03a7f0948017",
    "exact-count-words": "7339b5f67664",
    "full-corpus": "f74515faa602",
    "fusion": "5ad48e123736",
    "own-dense": "318077822e4d",
    "own-dense-100": "154f993846c1",
    "own-dense-100-bm25": "4bf353cb3af2",
    "own-dense-bm25": "c3ab9cc565ba",
    "own-dense-recall": "3fab285f9320",
    "own-dense-recall-bm25": "05cedb527058",
    "pool-sensitivity": "00acf29cb089",
    "projection": "18b32e6115dd",
    "shared-pool": "8b1587347a17",
}
FOLDER = Path(protocols.__file__).parent


def test_the_hashes_are_those_of_the_recorded_results() -> None:
    assert {name: load(name).hash[:12] for name in names()} == HASHES


@pytest.mark.parametrize("name", names())
def test_a_protocol_prints_as_its_own_specification(name: str) -> None:
    protocol = load(name)
    assert protocol.name == name
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    if "inherits" not in text:
        assert text == str(protocol)  # nothing is left to a default
    assert parse(str(protocol), "again") == protocol
    assert parse(str(protocol), "again").hash == protocol.hash


def test_inherited_protocols_state_what_differs(tmp_path: Path) -> None:
    few, many = load("ablations-16"), load("ablations")
    assert (
        replace(few, name=many.name, question=many.question, paper=many.paper, budgets=(128,))
        == many
    )
    file = tmp_path / "mine.toml"
    file.write_text('inherits = "budgets"\nname = "mine"\nbudgets = [7]\n')
    assert load(str(file)) == replace(load("budgets"), name="mine", budgets=(7,))
    file.write_text('inherits = "nothing"\nname = "mine"\n')
    with pytest.raises(InputError, match=r"mine\.toml: inherits = 'nothing'; known: ablations"):
        load(str(file))


def test_those_of_the_paper_are_there() -> None:
    paper = {"broad-deployed", "dimensional", "shared-pool", "pool-sensitivity", "exact-count"}
    assert paper <= set(names())
    assert load("broad-deployed").boundaries == "model+terms"
    assert load("pool-sensitivity").pools == (100, 200, 500, 1000, 2000)
    assert load("exact-count").budgets == (4, 8, 16, 32, 64, 128)
    assert load("exact-count").seeds == (13, 42, 2027, 3407, 9001)


def test_families_of_the_paper() -> None:
    """Ten contrasts with token and bigram over the planned budgets; eight of boundaries."""
    planned = load("exact-count").planned()
    ten = [c for c in planned if c.family == "phrase - token, bigram"]
    eight = [c for c in planned if c.family == "boundary placement"]
    assert (len(ten), len(eight)) == (10, 8)
    assert not [c for c in ten if c.ours.endswith(" 4")]  # an extra point, not in the family


def test_budgets_are_filled_in() -> None:
    text = (
        MINIMAL.replace("views", "fusion")
        + 'grid = [1.0]\nbudgets = [2, 4]\n[[contrasts]]\nours = "a {B}"\ntheirs = "b {B}"\n'
    )
    assert parse(text, "x").planned() == [Contrast("a 2", "b 2"), Contrast("a 4", "b 4")]


def test_any_change_changes_the_hash() -> None:
    text = str(load("broad-deployed"))
    assert parse(text.replace("[1000]", "[999]"), "x").hash != load("broad-deployed").hash


def test_a_file_is_a_protocol_too(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(str(load("budgets")).replace('"budgets"', '"own"', 1))
    assert load(str(file)).name == "own"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name = ", "x is not TOML"),
        ('name = "x"\nkind = "views"\n', "x lacks 'question'"),
        (MINIMAL + "colour = 1\n", "x: unknown key 'colour'; known: name, question"),
        (MINIMAL.replace("views", "view"), "x: kind = 'view'; known: views, widths"),
        (MINIMAL + 'gate_width = "wide"\n', "x: gate_width = 'wide' has the wrong type"),
        (MINIMAL + "pools = 5\n", "x: pools: expected a list, got 5"),
        (MINIMAL + "pools = [0]\n", "x: pools: expected numbers of 1 or more, got 0"),
        (MINIMAL + "budgets = [8, 4]\n", "x: budgets must ascend, each stated once"),
        (MINIMAL + "pools = []\n", "x: pools is empty"),
        (MINIMAL + "budgets = [5, 9]\n", "x: views measures one of budgets, not several"),
        (
            MINIMAL.replace("views", "widths") + 'rankers = ["bm25"]\n',
            "x: rankers are not for widths, which reads no other systems",
        ),
        (MINIMAL + "pools = [5, 9]\n", "x: views measures one of pools, not several"),
        (MINIMAL + "widths = [5, 9]\n", "x: views measures one of widths, not several"),
        (MINIMAL + "resamples = 500\n", "x: resamples = 500; known: 10000"),
        (MINIMAL + 'macros = ["most"]\n', "x: macros: expected one of all, sensitivity"),
        (MINIMAL + "grid = [-1.0]\n", "x: grid: expected weights above 0, got -1.0"),
        (MINIMAL.replace("views", "fusion"), "x: grid is empty"),
        (
            EXACT.format("ablations", "4, 8", "joint", '"model", "tokens"'),
            "x: ablations measures one of budgets",
        ),
        (
            EXACT.format("ablations", "4", "document", '"model", "tokens"'),
            "x: sides of ablations are joint",
        ),
        (
            EXACT.format("ablations", "4", "joint", '"model"'),
            "x: groupings of ablations are model, tokens",
        ),
        (
            EXACT.format("projection", "4", "joint", '"model", "random"'),
            "x: projection has no groupings but",
        ),
        (MINIMAL + "seeds = []\n", "x: seeds is empty"),
        (MINIMAL + "gate_width = 0\n", "x: expected gate_width and window of 1 or more"),
        (
            MINIMAL + 'sides = ["dokument"]\n',
            "x: sides: expected joint or document, got 'dokument'",
        ),
        (MINIMAL + 'text = "text"\n', "x: text = 'text'; known: title text"),
        (MINIMAL + 'metric = "map"\n', "x: metric = 'map'; known: ndcg@10, ndcg@100"),
        (MINIMAL + 'counts = "exact"\n', "x: counts = 'exact'; known: natural"),
        (MINIMAL + "shares = [7.0]\n", "x: shares: expected shares above 0 and up to 1, got 7.0"),
        (MINIMAL + 'sources = ["bm25"]\n', "x: sources are not for views, which reads"),
        (MINIMAL + 'groupings = ["nonsense"]\n', "x: groupings: "),
        (
            EXACT.format("exact-count", "4", "joint", '"chunks", "pooled"'),
            "x: chunks and pooled take their counts",
        ),
        (MINIMAL + 'paper = "tab:fusion"\n', "x: paper: 'tab:fusion' has no figures for views"),
        (MINIMAL.replace("views", "exact-count"), "x: counts = 'natural'; known: exact"),
        (
            MINIMAL + "[[contrasts]]\nours = 'a'\n",
            "x: expected a contrast with `ours`",
        ),
    ],
)
def test_mistakes_are_reported(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, "x")
    assert str(error.value).startswith(complaint)


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"unknown protocol 'braod'; known: .*broad-deployed"):
        load("braod")
    with pytest.raises(InputError, match=r"gone\.toml is not a file"):
        load("gone.toml")
