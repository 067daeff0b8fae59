"""Are units phrases? Exact span F1 and multi-word term recall on corpora marked by people.

    python benchmarks/spans.py ../shared/data/spans --cache /tmp/states --out docs/results

Gold of the entity corpora is partial: only units that overlap a gold span count as predictions.
Leading determiners are cut off the gold, for all systems alike. Length-matched random spans draw
their lengths from the trained model's own histogram on the same texts. Intervals: paired bootstrap
over texts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from hplus import HPlus
from hplus.evaluate.spans import Measure, SpanCounts, f1_difference, span_counts, strip_determiner
from hplus.states_file import cut, stored_states
from hplus.teach.sources import read_marked
from hplus.types import Bool, Tokens
from hplus.units import controls
from hplus.units.partition import partition, spans_of_units
from hplus.units.words import words

CORPORA = ("bc5cdr", "ncbi_disease", "scierc", "jnlpba", "oastm_np")
SEEDS = (13, 42, 2027, 3407, 9001)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = HPlus(options.model, long="cut")
    crf = model.checkpoint.crf
    if crf is None:
        raise SystemExit(f"{options.model} has no trained CRF")
    lines = []
    for name in CORPORA:
        marked = list(read_marked(options.data / name / f"{options.split}.jsonl.gz"))
        texts = [item.text for item in marked]
        stored = stored_states(model, texts, options.cache)
        tokens = stored.tokens
        # What the window cut off can be found by no system.
        seen = [int(tokens.spans[last - 1, 1]) if last > first else 0
                for first, last in pairwise(tokens.offsets.tolist())]  # fmt: skip
        gold = [
            sorted({strip_determiner(item.text, a, b) for a, b, kind in item.spans
                    if b <= end and kind != "NP-PRP"})
            for item, end in zip(marked, seen, strict=True)
        ]  # fmt: skip
        ours = cut(crf, stored)
        histogram = controls.length_histogram(ours, tokens)

        def random(seed: int, tokens: Tokens = tokens, histogram: np.ndarray = histogram) -> Bool:
            return controls.histogram_random(tokens, histogram, seed)

        rivals: dict[str, Callable[[], Bool]] = {
            rule: (lambda rule=rule, tokens=tokens: controls.rule(rule)(tokens))
            for rule in ("words", "ngrams-2", "ngrams-3", "runs")
        }
        rivals |= {f"random-{seed}": (lambda seed=seed: random(seed)) for seed in SEEDS}
        counted = counts(texts, gold, ours, tokens)
        lines.append({"corpus": name, "split": options.split, "units": "crf", **figures(counted)})
        lines[-1] |= lengths(texts, ours, tokens)
        for rule, begins in rivals.items():
            other = counts(texts, gold, begins(), tokens)
            line = {"corpus": name, "split": options.split, "units": rule, **figures(other)}
            for measure in ("f1", "multi_recall"):
                found = f1_difference(counted, other, measure=measure)
                line[f"{measure}_behind"] = [
                    round(100 * v, 2) for v in (found.mean, found.low, found.high)
                ]
            lines.append(line)
        for line in lines[-1 - len(rivals) :]:
            print(json.dumps(line), flush=True)
    if options.out:
        text = "\n".join(json.dumps(line) for line in lines) + "\n"
        (options.out / "spans.jsonl").write_text(text)


def counts(
    texts: list[str], gold: list[list[tuple[int, int]]], begins: Bool, tokens: Tokens
) -> SpanCounts:
    units = partition(begins, tokens.offsets)
    spans = spans_of_units(tokens, units).tolist()
    own = [[(start, end) for start, end in spans[a:b]] for a, b in pairwise(units.offsets.tolist())]
    return span_counts(texts, gold, own)


def figures(counted: SpanCounts) -> dict[str, float]:
    names: tuple[Measure, ...] = ("f1", "precision", "recall", "multi_recall")
    return {name: round(100 * counted.measure(name), 2) for name in names}


def lengths(texts: list[str], begins: Bool, tokens: Tokens) -> dict[str, float]:
    """How long the units are, in words; punctuation and function words are units too."""
    units = partition(begins, tokens.offsets)
    spans = spans_of_units(tokens, units).tolist()
    found = []
    for text, (a, b) in zip(texts, pairwise(units.offsets.tolist()), strict=True):
        found += [len(words(text[s:e], han="characters")) for s, e in spans[a:b]]
    several = [n for n in found if n > 1]
    return {
        "units_a_text": round(len(found) / len(texts), 1),
        "share_of_several_words": round(len(several) / len(found), 3),
        "mean_words": round(float(np.mean(found)), 2),
        "mean_words_of_several": round(float(np.mean(several)), 2) if several else 0.0,
    }


if __name__ == "__main__":
    main()
