"""Teachers: what scores documents for a query, so that a student can learn from it.

    bm25             words (Lucene's variant, over the documents at hand)
    tokens:MODEL     late interaction over all tokens, weighted by the model's importance head
    global:MODEL     cosine of the global vectors: any dense encoder
    cross:FOLDER     a cross-encoder: model.onnx in onnxruntime, or a transformers classifier
    0.3*tokens:MODEL a weight in an ensemble

Scores of different teachers have different spreads, so each is divided by its own, the mean
standard deviation within a group, before they are added; a teacher keeps its doubts, since the
divisor is the same for all queries. Documents are encoded once and kept in the cache.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hplus.backbones.encode import encode_states
from hplus.backbones.runtime import onnxruntime
from hplus.errors import InputError, MissingExtraError
from hplus.evaluate.bm25 import BM25
from hplus.files import writing
from hplus.kernels import weighted_maxsim
from hplus.progress import show_progress
from hplus.states_file import F16, ROWS, are_stored, stored_states, weigh
from hplus.types import F32, F64, I64
from hplus.units.vectors import normalise

if TYPE_CHECKING:
    from hplus.model import HPlus
    from hplus.recipe import Side

_SPELLED = re.compile(r"(?:(?P<weight>[0-9.]+)\*)?(?P<kind>[a-z0-9]+)(?::(?P<source>.+))?")
PAIRS = 32
"""Pairs a cross-encoder reads at once."""

Scores = list[F64]
"""One array per query, a score for each document of its group."""


@dataclass(frozen=True)
class Teacher:
    """One teacher as the command line spells it.

    >>> Teacher.parse("0.3*tokens:small")
    Teacher(kind='tokens', source='small', weight=0.3)
    """

    kind: str
    source: str = ""
    weight: float = 1.0

    @classmethod
    def parse(cls, spelled: str) -> Teacher:
        """From `[WEIGHT*]KIND[:SOURCE]`."""
        match = _SPELLED.fullmatch(spelled)
        kind, source = (match["kind"], match["source"] or "") if match else ("", "")
        try:
            weight = float((match["weight"] if match else None) or 1)
        except ValueError:
            weight = 0.0
        if kind not in SCORERS or weight <= 0 or bool(source) == (kind == "bm25"):
            raise InputError(
                f"teacher {spelled!r}: expected bm25, tokens:MODEL, global:MODEL or cross:FOLDER, "
                "with a weight such as 0.3* before it if there are several"
            )
        return cls(kind, source, weight)


def teach_scores(
    teachers: Sequence[Teacher],
    queries: Sequence[str],
    documents: Sequence[str],
    groups: Sequence[I64],
    cache: Path,
    *,
    sharpness: float = 1.0,
) -> Scores:
    """Logits t(q, d) of every document of every query's group (rows of `documents`).

    sharpness: the mean standard deviation of the logits within a group, whatever the teachers.
    """
    if not teachers:
        raise InputError("expected a teacher")
    total = [np.zeros(len(group)) for group in groups]
    for teacher in teachers:
        scores = SCORERS[teacher.kind](teacher.source, queries, documents, groups, cache)
        divisor = spread(scores) / teacher.weight
        total = [t + s / divisor for t, s in zip(total, scores, strict=True)]
    factor = sharpness / spread(total)
    return [(t - t.mean()) * factor for t in total]


def spread(scores: Scores) -> float:
    """The mean standard deviation within a group; 1 if all groups have one score."""
    deviations = [float(own.std()) for own in scores if len(own) > 1]
    return float(np.mean(deviations or [1.0])) or 1.0


def _bm25(
    _source: str,
    queries: Sequence[str],
    documents: Sequence[str],
    groups: Sequence[I64],
    _cache: Path,
) -> Scores:
    corpus = BM25(documents)
    found = []
    with show_progress("scoring by BM25", len(queries)) as bar:
        for query, group in zip(queries, groups, strict=True):
            found.append(corpus.scores(query)[group].astype(np.float64))
            bar.advance(1)
    return found


def _tokens(
    source: str,
    queries: Sequence[str],
    documents: Sequence[str],
    groups: Sequence[I64],
    cache: Path,
) -> Scores:
    """MaxSim over all tokens, divided by the query's weight: in [-1, 1]."""
    from hplus.model import HPlus

    model = HPlus(source, long="cut")
    asked = stored_states(model, queries, cache, side="query", progress="encoding queries")
    given = stored_states(last_layer(model), documents, cache, progress="encoding documents")
    head = model.checkpoint.head if model.recipe.importance == "head" else None
    weights = weigh(head, asked) if head else np.ones(len(asked.tokens.ids), np.float32)
    q_offsets, d_offsets = asked.tokens.offsets, given.tokens.offsets
    lengths = np.concatenate([np.empty(0, np.float32), *map(_lengths, _blocks(given.states))])
    scales = 1 / np.maximum(lengths, np.float32(1e-12))
    found = []
    with show_progress(f"scoring by {source}", len(queries)) as bar:
        for row, group in enumerate(groups):
            own = slice(q_offsets[row], q_offsets[row + 1])
            query = normalise(asked.states[own].astype(np.float32))
            starts, ends = d_offsets[group], d_offsets[group + 1]
            raw = weighted_maxsim(query, weights[own], given.states, scales, starts, ends)
            found.append(raw.astype(np.float64) / max(float(weights[own].sum()), 1e-9))
            bar.advance(1)
    return found


def _blocks(states: F16) -> Iterator[F32]:
    """All rows in float32, some at a time."""
    for first in range(0, len(states), ROWS):
        yield states[first : first + ROWS].astype(np.float32)


def _lengths(rows: F32) -> F32:
    lengths: F32 = np.linalg.norm(rows, axis=1).astype(np.float32)
    return lengths


def _global(
    source: str,
    queries: Sequence[str],
    documents: Sequence[str],
    groups: Sequence[I64],
    cache: Path,
) -> Scores:
    asked, given = global_vectors(source, queries, documents, cache)
    pairs = zip(asked, groups, strict=True)
    return [(given[group] @ query).astype(np.float64) for query, group in pairs]


def global_vectors(
    source: str,
    queries: Sequence[str],
    documents: Sequence[str],
    cache: Path,
    *,
    with_tokens: bool = False,
) -> tuple[F32, F32]:
    """Normalised global vectors of both sides at full width, kept in the cache.

    with_tokens: keep the token states of both sides, too, for a teacher that will read them.
    """
    from hplus.model import HPlus

    whole = HPlus(source, long="cut")
    model = last_layer(whole)
    # A teacher of tokens weighs those of a query, for which it needs the heads' layer, too.
    if with_tokens or are_stored(whole, queries, cache, side="query"):
        asked = normalise(
            stored_states(whole, queries, cache, side="query", progress="encoding queries").pooled
        )
    else:
        asked = _pooled(model, queries, "query", cache)
    if with_tokens or are_stored(model, documents, cache):
        given = stored_states(model, documents, cache, progress="encoding documents")
        return asked, normalise(given.pooled)
    return asked, _pooled(model, documents, "document", cache)


def last_layer(model: HPlus) -> HPlus:
    """The same model, whose heads' layer is not asked for: half the states to keep."""
    other = copy.copy(model)
    recipe = replace(model.recipe, layer=None)
    other.checkpoint = replace(model.checkpoint, recipe=recipe)
    return other


def _pooled(model: HPlus, texts: Sequence[str], side: Side, cache: Path) -> F32:
    digest = hashlib.sha256(f"{model.fingerprint} {side} {len(texts)}".encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    path = cache / f"global-{digest.hexdigest()[:24]}.npy"
    if path.exists():
        kept: F32 = np.load(path, allow_pickle=False)
        return kept
    backbone, reading = model.checkpoint.backbone, model.recipe.reading(side)
    parts = [np.empty((0, model.dim), np.float32)]
    with show_progress(
        f"encoding {'queries' if side == 'query' else 'documents'}", len(texts)
    ) as b:
        for first in range(0, len(texts), 256):
            tokens = backbone.tokenizer.tokens(texts[first : first + 256], reading.prompt)
            states = encode_states(
                backbone, tokens, reading, threads=model.threads, advance=b.advance
            )
            parts.append(states.pooled)
    vectors = normalise(np.concatenate(parts))
    cache.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        np.save(file, vectors, allow_pickle=False)
    return vectors


def _cross(
    source: str,
    queries: Sequence[str],
    documents: Sequence[str],
    groups: Sequence[I64],
    _cache: Path,
) -> Scores:
    """One pass per pair: nothing can be kept."""
    read = _cross_encoder(Path(source))
    found = []
    with show_progress(f"scoring by {Path(source).name}", len(queries)) as bar:
        for query, group in zip(queries, groups, strict=True):
            parts = [
                read([(query, documents[d]) for d in group[first : first + PAIRS].tolist()])
                for first in range(0, len(group), PAIRS)
            ]
            found.append(np.concatenate([np.empty(0), *parts]))
            bar.advance(1)
    return found


def _cross_encoder(folder: Path) -> Callable[[list[tuple[str, str]]], F64]:
    """A function from pairs of texts to logits."""
    import tokenizers

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{path} is missing; expected the folder of a cross-encoder")
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(512, strategy="longest_first")  # a query may be longer, too
    tokenizer.enable_padding()
    run = _onnx(folder) if (folder / "model.onnx").is_file() else _classifier(folder)

    def read(pairs: list[tuple[str, str]]) -> F64:
        encodings = tokenizer.encode_batch(pairs)
        inputs = {
            name: np.array([getattr(encoding, own) for encoding in encodings], np.int64)
            for name, own in (
                ("input_ids", "ids"),
                ("attention_mask", "attention_mask"),
                ("token_type_ids", "type_ids"),
            )
        }
        # Two classes: the second is "relevant".
        logits = run(inputs)
        return logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)

    return read


def _onnx(folder: Path) -> Callable[[dict[str, Any]], F64]:
    session = onnxruntime().InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    known = {given.name for given in session.get_inputs()}

    def run(inputs: dict[str, Any]) -> F64:
        found = session.run(None, {name: x for name, x in inputs.items() if name in known})
        return np.asarray(found[0], np.float64)

    return run


def _classifier(folder: Path) -> Callable[[dict[str, Any]], F64]:
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtraError(
            f"{folder} has no model.onnx; without it this needs pip install 'hplus[torch]'"
        ) from None
    from hplus.backbones.transformers_ import read_model

    model = read_model(str(folder), transformers.AutoModelForSequenceClassification).eval()

    def run(inputs: dict[str, Any]) -> F64:
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(x) for name, x in inputs.items()}
            logits: F64 = model(**tensors).logits.double().numpy()
        return logits

    return run


SCORERS: dict[str, Callable[[str, Sequence[str], Sequence[str], Sequence[I64], Path], Scores]] = {
    "bm25": _bm25,
    "tokens": _tokens,
    "global": _global,
    "cross": _cross,
}
