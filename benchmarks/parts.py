"""What each part of an encoding costs beside the encoder itself, in CPU time on one core.

    python benchmarks/parts.py ../shared/data/eval/scifact --out docs/results

Abstracts in steps of 50, default budget; the parts are run one after another
on each step, so that a slow moment of the machine hits them all.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hplus import HPlus
from hplus.backbones.encode import encode_states
from hplus.backbones.threads import one_blas_thread
from hplus.evaluate.data import read_beir
from hplus.heads import crf
from hplus.units import patterns
from hplus.units.partition import begins_of_tags, keep_characters_whole
from hplus.units.select import spend
from hplus.unknown import Count
from hplus.views import global_, lexical, phrase
from machine import record

STEP = 50


def measure(model: HPlus, texts: list[str]) -> Counter[str]:
    """CPU seconds of every part."""
    seconds: Counter[str] = Counter()

    def part(name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        started = time.process_time()
        result = function(*arguments, **named)
        seconds[name] += time.process_time() - started
        return result

    tokenizer, reading = model.checkpoint.backbone.tokenizer, model.recipe.reading("document")
    head = model.checkpoint.crf
    assert head is not None
    for first in range(0, len(texts), STEP):
        step = texts[first : first + STEP]
        tokens = part("tokens", tokenizer.tokens, step)
        part("unknown tokens counted", Count().add, tokenizer, step)
        states = part("encoder", encode_states, model.checkpoint.backbone, tokens, reading)
        tokens, inner = states.tokens, states.inner
        scores = part("CRF: emissions", crf.emissions, head, inner, tokens.offsets)
        tags, _ = part("CRF: Viterbi", crf.viterbi, head, scores, tokens.offsets)
        begins = keep_characters_whole(begins_of_tags(tags, tokens.offsets), tokens)
        begins = part("patterns", patterns.override, begins, tokens)
        importance = part("importance", model._importance, tokens, inner)
        units = part(
            "units pooled", phrase.units_of, tokens, states.states, importance, begins, model.dim
        )
        part("units merged", spend, model.recipe.document_budget, units)
        part("lexical", lexical.represent, tokens, importance, tokenizer.unknown)
        part("global", global_.represent, states.pooled, model.dim)
    return seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="small")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--abstracts", type=int, default=200)
    arguments = parser.parse_args()
    model = HPlus(arguments.model, long="cut")
    texts = read_beir(arguments.data).documents[: arguments.abstracts]
    model.encode_document(texts[:8])
    with one_blas_thread():
        seconds = measure(model, texts)
    encoder = seconds["encoder"]
    others = sum(seconds.values()) - encoder
    rows = [
        {
            "part": name,
            "ms_per_abstract": round(1e3 * value / len(texts), 3),
            "of_encoder": round(value / encoder, 4),
        }
        for name, value in [*seconds.most_common(), ("all but the encoder", others)]
    ]
    record(arguments.out / "parts.jsonl", rows)
