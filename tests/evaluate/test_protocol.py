"""Protocols are frozen texts: each prints as itself, and a mistake in one is told."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from hplus import InputError
from hplus.evaluate.protocol import Contrast, load, names, parse

MINIMAL = 'name = "x"\nquestion = "?"\nkind = "views"\n'
EXACT = (
    'name = "x"\nquestion = "?"\nkind = "{}"\ncounts = "exact"\nbudgets = [{}]\n'
    'sides = ["{}"]\ngroupings = [{}]\n'
)


@pytest.mark.parametrize("name", names())
def test_a_protocol_prints_as_its_own_specification(name: str) -> None:
    protocol = load(name)
    assert protocol.name == name
    file = resources.files("hplus") / "evaluate" / "protocols" / f"{name}.toml"
    assert file.read_text(encoding="utf-8") == str(protocol)  # nothing is left to a default
    assert parse(str(protocol), "again") == protocol
    assert parse(str(protocol), "again").hash == protocol.hash


def test_those_of_the_paper_are_there() -> None:
    paper = {"broad-deployed", "dimensional", "shared-pool", "pool-sensitivity", "exact-count"}
    assert paper <= set(names())
    assert load("broad-deployed").boundaries == "model+terms"
    assert load("pool-sensitivity").pools == (100, 200, 500, 1000, 2000)
    assert load("exact-count").budgets == (4, 8, 16, 32, 64, 128)
    assert load("exact-count").seeds == (13, 42, 2027, 3407, 9001)


def test_families_of_the_paper() -> None:
    """Ten contrasts with token and bigram over the planned budgets; eight of boundaries."""
    planned = load("exact-count").families()
    ten = [c for c in planned if c.family == "phrase - token, bigram"]
    eight = [c for c in planned if c.family == "boundary placement"]
    assert (len(ten), len(eight)) == (10, 8)
    assert not [c for c in ten if c.ours.endswith(" 4")]  # an extra point, not in the family


def test_budgets_are_filled_in() -> None:
    text = MINIMAL + 'budgets = [2, 4]\n[[contrasts]]\nours = "a {B}"\ntheirs = "b {B}"\n'
    assert parse(text, "x").families() == [Contrast("a 2", "b 2"), Contrast("a 4", "b 4")]


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
        (MINIMAL + "colour = 1\n", "x: unknown 'colour'; known: name, question"),
        (MINIMAL.replace("views", "view"), "x: kind = 'view'; known: views, widths"),
        (MINIMAL + 'gate_width = "wide"\n', "x: gate_width = 'wide' is of the wrong type"),
        (MINIMAL + "pools = 5\n", "x: pools = 5; a list is expected"),
        (MINIMAL + "pools = [0]\n", "x: pools has 0; numbers of 1 or more"),
        (MINIMAL + "budgets = [8, 4]\n", "x: budgets ascend, each stated once"),
        (MINIMAL + "pools = []\n", "x: pools is empty"),
        (MINIMAL + "pools = [5, 9]\n", "x: views measures one of pools, not several"),
        (MINIMAL + "widths = [5, 9]\n", "x: views measures one of widths, not several"),
        (MINIMAL + "resamples = 500\n", "x: resamples = 500; 10000 is expected"),
        (MINIMAL + 'macros = ["most"]\n', "x: macros has 'most'; known: all, sensitivity"),
        (MINIMAL + "grid = [-1.0]\n", "x: grid has -1.0; weights above 0 are expected"),
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
        (MINIMAL + "gate_width = 0\n", "x: gate_width and window are 1 or more"),
        (MINIMAL + 'sides = ["dokument"]\n', "x: sides has 'dokument'; known: joint, document"),
        (MINIMAL + 'text = "text"\n', "x: text = 'text'; known: title text"),
        (MINIMAL + 'metric = "map"\n', "x: metric = 'map'; known: ndcg@10"),
        (MINIMAL + 'counts = "exact"\n', "x: counts = 'exact'; known: natural"),
        (MINIMAL + "shares = [7.0]\n", "x: shares has 7.0"),
        (MINIMAL + 'sources = ["bm25"]\n', "x: sources are of shared pools, this is views"),
        (MINIMAL + 'groupings = ["nonsense"]\n', "x: groupings: "),
        (MINIMAL + 'groupings = ["chunks", "pooled"]\n', "x: chunks and pooled take their counts"),
        (MINIMAL.replace("views", "exact-count"), "x: counts = 'natural'; known: exact"),
        (MINIMAL + "[[contrasts]]\nours = 'a'\n", "x: a contrast has `ours` and `theirs`"),
    ],
)
def test_mistakes_are_told(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, "x")
    assert str(error.value).startswith(complaint)


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"protocol 'braod' asked; known: .*broad-deployed"):
        load("braod")
    with pytest.raises(InputError, match=r"gone\.toml is no file"):
        load("gone.toml")
