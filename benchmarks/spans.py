"""Are units phrases? Exact span F1 and multi-word term recall on corpora annotated by people.

    python benchmarks/spans.py ../shared/data/spans --cache /tmp/states --out docs/results

Gold of the entity corpora is partial: only units that overlap a gold span count as predictions.
Gold spans may nest and units may not, so recall can stay below 1 even for the best partition.
Leading determiners are stripped from the gold, for all systems alike. Length-matched random spans
draw their lengths from the trained model's own histogram on the same texts. Intervals: paired
bootstrap over texts.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from hplus import HPlus
from hplus.states_file import stored_states, unit_begins
from hplus.types import Span
from hplus.units import rules
from hplus.units.words import HAN, whitespace_words, words
from hplus_lab.audit.constructions import SEEDS, ends_of, units_of
from hplus_lab.audit.items import read_items
from hplus_lab.audit.tally import Tally, measure_difference, overlapping, tally, total
from hplus_lab.length_histogram import histogram_random, length_histogram

CORPORA = ("bc5cdr", "ncbi_disease", "scierc", "jnlpba", "oastm_np")
RULES = ("words", "ngrams-2", "ngrams-3", "runs")
HAN_CHARACTER = re.compile(f"[{HAN}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    lines = []
    for name in CORPORA:
        for line in measure(model, options.data / name, options.split, options.cache):
            lines.append({"corpus": name, "split": options.split, **line})
            print(json.dumps(lines[-1]), flush=True)
    if options.out:
        text = "\n".join(json.dumps(line) for line in lines) + "\n"
        (options.out / "spans.jsonl").write_text(text)


def measure(model: HPlus, folder: Path, split: str, cache: Path) -> list[dict[str, Any]]:
    """One line for each kind of units, the CRF's first; how far the others are behind it."""
    if model.checkpoint.crf is None:
        raise SystemExit(f"{model.recipe.name} has no trained CRF")
    items = read_items(folder, split)
    texts = [item.text for item in items]
    stored = stored_states(model, texts, cache)
    tokens = stored.tokens
    gold = [
        {span for span in item.marks["A"].units if span.end <= end}
        for item, end in zip(items, ends_of(tokens), strict=True)
    ]
    several = [
        {span for span in own if word_count(text[slice(*span)]) > 1}
        for text, own in zip(texts, gold, strict=True)
    ]
    begins = {"crf": unit_begins(model.checkpoint.crf, stored, settled=model.recipe.patterns)}
    histogram = length_histogram(begins["crf"], tokens)
    begins |= {rule: rules.rule(rule)(tokens) for rule in RULES}
    begins |= {f"random-{seed}": histogram_random(tokens, histogram, seed) for seed in SEEDS}
    units = {kind: units_of(tokens, own) for kind, own in begins.items()}
    whole = {kind: tallies(gold, own) for kind, own in units.items()}
    multi = {kind: tallies(several, own) for kind, own in units.items()}
    lines: list[dict[str, Any]] = []
    for kind in units:
        every = total(whole[kind])
        figures = {"f1": every.f1, "precision": every.precision, "recall": every.recall}
        figures["multi_recall"] = total(multi[kind]).recall
        line = {"units": kind, **{name: percent(value) for name, value in figures.items()}}
        if kind == "crf":
            line |= lengths(texts, units["crf"])
        else:
            by_f1 = measure_difference(whole["crf"], whole[kind], "f1")
            by_recall = measure_difference(multi["crf"], multi[kind], "recall")
            for name, found in (("f1", by_f1), ("multi_recall", by_recall)):
                line[f"{name}_behind"] = [percent(v) for v in (found.mean, found.low, found.high)]
        lines.append(line)
    return lines


def tallies(gold: list[set[Span]], units: list[list[Span]]) -> list[Tally]:
    return [tally(g, overlapping(g, u)) for g, u in zip(gold, units, strict=True)]


def percent(value: float) -> float:
    return round(100 * value, 2)


def word_count(text: str) -> int:
    """Words between white space; a word with Han characters counts character by character."""
    pieces = (text[start:end] for start, end in whitespace_words(text))
    return sum(len(words(p, han="characters")) if HAN_CHARACTER.search(p) else 1 for p in pieces)


def lengths(texts: list[str], units: list[list[Span]]) -> dict[str, float]:
    """How long the units are, in words; punctuation and function words are units too."""
    found = [
        len(words(text[slice(*unit)], han="characters"))
        for text, own in zip(texts, units, strict=True)
        for unit in own
    ]
    several = [n for n in found if n > 1]
    return {
        "units_a_text": round(len(found) / len(texts), 1),
        "share_of_several_words": round(len(several) / len(found), 3),
        "mean_words": round(float(np.mean(found)), 2),
        "mean_words_of_several": round(float(np.mean(several)), 2) if several else 0.0,
    }


if __name__ == "__main__":
    main()
