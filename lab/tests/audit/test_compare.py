"""Every construction on the fixture, and the report of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hplus import CheckpointError, HPlus, InputError
from hplus.evaluate.statistics import holm
from hplus.states_file import stored_states, unit_begins
from hplus.types import Span
from hplus.units.terms import Terms
from hplus_lab.audit import Item, Marks, compare, read_items, units_of
from hplus_lab.audit.constructions import SEEDS, constructions
from hplus_lab.audit.gains import gain_correlation
from hplus_lab.audit.items import audit_tokens
from hplus_lab.audit.measures import agreement, boundary_f1, count
from hplus_lab.audit.reference import FLAGS, reference_of
from hplus_lab.audit.report import COLUMNS, markdown, summarise, table
from hplus_lab.audit.tally import total
from hplus_lab.length_histogram import histogram_random, length_histogram
from marked_texts import AUDIT, item_of


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return read_items(AUDIT)


def test_constructions(mini: HPlus, items: list[Item], cache: Path) -> None:
    stored = stored_states(mini, [item.text for item in items], cache)
    assert mini.checkpoint.crf is not None
    begins = unit_begins(mini.checkpoint.crf, stored)
    made = constructions(stored.tokens, begins)
    assert list(made) == [
        "crf", "whole words", "content-word runs", "whitespace words", "random", "bigrams",
        "trigrams", "equal chunks"
    ]  # fmt: skip
    assert [len(runs) for runs in made.values()] == [1, 1, 1, 1, len(SEEDS), 1, 1, 1]
    units = {name: units_of(stored.tokens, runs[0]) for name, runs in made.items()}
    counts = [len(own) for own in units["crf"]]
    assert [len(own) for own in units["equal chunks"]] == counts
    text = items[1].text
    assert [text[a:b] for a, b in units["bigrams"][1]] == [
        "acute kidney", "injury after", "heart surgery"
    ]  # fmt: skip
    assert units["whole words"][1] == audit_tokens(text)
    histogram = length_histogram(begins, stored.tokens)
    for run, seed in zip(made["random"], SEEDS, strict=True):
        expected = histogram_random(stored.tokens, histogram, seed)
        np.testing.assert_array_equal(run, expected)
    assert len({run.tobytes() for run in made["random"]}) == len(SEEDS)


def test_terms_become_units_of_the_crf(mini: HPlus, items: list[Item], cache: Path) -> None:
    stored = stored_states(mini, [item.text for item in items], cache)
    assert mini.checkpoint.crf is not None
    begins = unit_begins(mini.checkpoint.crf, stored)
    terms = Terms(["kidney injury after heart"])
    made = constructions(stored.tokens, begins, terms=terms)
    text = items[1].text
    term = Span(text.index("kidney"), text.index(" surgery"))
    assert term not in units_of(stored.tokens, made["crf"][0])[1]
    assert term in units_of(stored.tokens, made["crf+trie"][0])[1]


def test_rows(mini: HPlus, items: list[Item], cache: Path) -> None:
    teacher = {item.text: item.marks["A"].units for item in items}
    terms = Terms(["acute kidney injury", "Non-small-cell lung cancer"])
    found = compare(mini, items, cache, terms=terms, teacher=teacher)
    assert list(found.rows)[:3] == ["crf", "crf+trie", "teacher"]
    assert found.items == 10
    assert found.unseen == 0
    taught = found.rows["teacher"]
    assert taught.boundary_f1.tolist() == [1.0] * 10
    assert (taught.exact_f1, taught.multi_f1) == (1, 1)
    # A marks 儿童哮喘 as a term, but splits it into two units: one of the 15 is not whole.
    assert taught.term_recall == pytest.approx(14 / 15)
    assert (taught.flagged, set(taught.flags.values())) == (0, {0})
    stored = stored_states(mini, [item.text for item in items], cache)
    made = constructions(stored.tokens, unit_begins(mini.checkpoint.crf, stored), terms=terms)  # type: ignore[arg-type]
    references = [reference_of(item) for item in items]
    for name, runs in made.items():
        row = found.rows[name]
        counts = [
            [count(r, u) for r, u in zip(references, units_of(stored.tokens, run), strict=True)]
            for run in runs
        ]
        values = np.mean([boundary_f1(references, own) for own in counts], axis=0)
        assert row.boundary_f1 == pytest.approx(values)
        units = [sum(map(len, units_of(stored.tokens, run))) for run in runs]
        assert row.units == pytest.approx(np.mean(units) / len(items))
        for field in ("units", "multi"):
            scores = [total(getattr(text, field) for text in run).f1 for run in counts]
            figure = {"units": row.exact_f1, "multi": row.multi_f1}[field]
            assert figure == pytest.approx(np.mean(scores))
        recalls = [sum(t.recalled for t in run) / sum(t.terms for t in run) for run in counts]
        assert row.term_recall == pytest.approx(np.mean(recalls))
        for flag in FLAGS:
            shown = [sum(flag in text.errors for text in run) for run in counts]
            assert row.flags[flag] == pytest.approx(np.mean(shown))
        assert row.flagged == pytest.approx(
            np.mean([sum(bool(text.errors) for text in run) for run in counts])
        )
    trie = found.rows["crf+trie"]
    assert trie.term_recall >= found.rows["crf"].term_recall
    assert found.agreement == agreement(items)


def test_whole_words_recall_no_english_term(mini: HPlus, items: list[Item], cache: Path) -> None:
    english = [item for item in items if item.text.isascii()]
    row = compare(mini, english, cache).rows["whole words"]
    assert (row.multi_f1, row.term_recall) == (0, 0)


def test_the_window_ends_what_counts(mini: HPlus, cache: Path) -> None:
    text = "lung cancer " * 300
    units = tuple(Span(start, start + 11) for start in range(0, 3600, 12))
    item = Item("1", text, {"A": Marks(units, units)})
    found = compare(mini, [item], cache)
    assert found.tokens == 600
    assert 0 < 600 - found.unseen <= mini.recipe.window
    bigrams = found.rows["bigrams"]
    assert bigrams.boundary_f1.tolist() == [1.0]
    assert (bigrams.exact_f1, bigrams.term_recall) == (1, 1)


def test_what_cannot_be_audited(mini: HPlus, tiny: HPlus, items: list[Item], cache: Path) -> None:
    with pytest.raises(CheckpointError, match="has no trained CRF"):
        compare(tiny, items, cache)
    with pytest.raises(InputError, match="none of the 1 items has a gap"):
        compare(mini, [item_of("aspirin")], cache)
    with pytest.raises(InputError, match="no labels for 10 of 10 texts, the first 'Does metformin"):
        compare(mini, items, cache, teacher={})


def test_the_summary(mini: HPlus, items: list[Item], cache: Path) -> None:
    gains = {item.text: float(i % 4) for i, item in enumerate(items)}
    found = compare(mini, items, cache, reference="union")
    correlation = gain_correlation(items, found.rows["crf"].boundary_f1, gains)
    about = {"set": "a", "split": None, "gold": "exhaustive", "reference": "union"}
    summary = summarise(found, correlation, **about, model="m", fingerprint="f" * 64)
    assert summary == summarise(found, correlation, **about, model="m", fingerprint="f" * 64)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert list(summary["absent"]) == ["crf+trie", "teacher"]
    assert summary["gains"]["items"] == 10
    crf = summary["rows"]["crf"]
    assert "crf_ahead" not in crf
    for name, row in summary["rows"].items():
        assert row["low"] <= row["boundary_f1"] <= row["high"]
        assert row["boundary_f1"] == pytest.approx(found.rows[name].boundary_f1.mean(), abs=1e-4)
        if name != "crf":
            ahead = row["crf_ahead"]
            assert ahead["mean"] == pytest.approx(crf["boundary_f1"] - row["boundary_f1"], abs=2e-4)
    ahead = [row["crf_ahead"] for name, row in summary["rows"].items() if name != "crf"]
    exact = holm([found["p"] for found in ahead])
    assert [found["holm"] for found in ahead] == pytest.approx(exact, abs=1e-3)
    assert any(found["holm"] > found["p"] for found in ahead)
    page = markdown([summary])
    assert page.count("| crf |") == 2
    assert "No row teacher: it needs a file of labels (--teacher)." in page
    assert "Cohen's kappa 0.527 (undefined for 1)" in page
    assert "Holm's family: the CRF against the 7 other constructions." in page
    assert all(len(line) == len(COLUMNS) for line in table(summary))


def test_what_is_undefined_is_none(mini: HPlus, cache: Path) -> None:
    found = compare(mini, [item_of("Is | aspirin | safe")], cache)
    row = summarise(found)["rows"]["crf"]
    assert row["multi_f1"] is None
    assert row["term_recall"] is None
    assert table(summarise(found))[0][4:6] == ["undefined", "undefined"]
