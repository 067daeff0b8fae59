"""The real metric on a small pool: nDCG@10 of the phrase view at the budgets and widths in use.

The student's states go through the product's own code for units, merging and scoring, so what is
validated is what will be searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hplus.errors import InputError
from hplus.evaluate import rescore
from hplus.evaluate.data import RetrievalSet, read_beir, sample
from hplus.evaluate.metrics import ndcg
from hplus.states_file import StoredStates
from hplus.train.config import DevSettings
from hplus.train.objective import Side, side_of
from hplus.train.passes import Reader, encode
from hplus.train.student import Student
from hplus.train.texts import Texts
from hplus.types import F32, F64, Units
from hplus.units.select import Budget
from hplus.units.vectors import normalise
from hplus.views import lexical

SEED = 13
VIEWS = ("global", "lexical", "tokens")
"""What is measured beside the cells, budget x width, of the phrase view."""


@dataclass(frozen=True)
class Pool:
    """A dev set small enough to be encoded again and again."""

    name: str
    data: RetrievalSet
    queries: Reader
    documents: Reader


def dev_sets(settings: DevSettings) -> list[tuple[str, RetrievalSet]]:
    """The sets of a configuration, cut to their sample."""
    found = []
    for spelled in settings.sets:
        folder, _, split = spelled.rpartition(":")
        if not folder or not Path(folder).is_dir():
            raise InputError(f"dev.sets: expected FOLDER:SPLIT of a BEIR set, got {spelled!r}")
        data = small_pool(read_beir(Path(folder), split), settings.queries, settings.documents)
        found.append((Path(folder).name, data))
    return found


def small_pool(data: RetrievalSet, queries: int, documents: int) -> RetrievalSet:
    """A sample of the queries; their relevant documents, and others at random up to a number."""
    data = sample(data, queries, SEED)
    wanted = {d for q in data.query_ids for d, grade in data.judgements[q].items() if grade > 0}
    others = [i for i, name in enumerate(data.document_ids) if name not in wanted]
    order = np.random.default_rng(SEED).permutation(len(others))
    more = {others[i] for i in order[: max(0, documents - len(wanted))].tolist()}
    kept = [i for i, name in enumerate(data.document_ids) if name in wanted or i in more]
    return RetrievalSet(
        [data.document_ids[i] for i in kept],
        [data.documents[i] for i in kept],
        data.query_ids,
        data.queries,
        data.judgements,
    )


def validate(student: Student, pools: list[Pool], settings: DevSettings) -> dict[str, float]:
    """Macro nDCG@10 in points: global, lexical, tokens, units at budget x width, and "phrase", the
    mean of the latter, which decides."""
    rows = [measure(student, pool, settings) for pool in pools]
    macro = {name: 100 * float(np.mean([row[name].mean() for row in rows])) for name in rows[0]}
    cells = [value for name, value in macro.items() if name not in VIEWS]
    return {"phrase": float(np.mean(cells)), **macro}


def measure(student: Student, pool: Pool, settings: DevSettings) -> dict[str, F64]:
    """nDCG@10 of every query of a set, by view, and of units at every budget x width."""
    with torch.no_grad():
        queries, documents = (_side(student, reader) for reader in (pool.queries, pool.documents))
    vectors = [normalise(_array(side.pooled)) for side in (queries, documents)]
    found = {"global": vectors[0] @ vectors[1].T}
    views = [
        lexical.represent(side.texts.tokens, weights, _unknown(side.texts))
        for side, weights in zip(
            (queries, documents), _lexical_weights(student, queries, documents), strict=True
        )
    ]
    vocabulary = student.backbone.tokenizer.vocabulary
    found["lexical"] = rescore.lexical(views[0], views[1], vocabulary)
    stored = [_stored(side) for side in (queries, documents)]
    weights = [_array(side.importance) for side in (queries, documents)]
    begins = [student.begins(_array(s.inner), s.texts.tokens) for s in (queries, documents)]
    tokens = [np.ones(len(s.tokens.ids), np.bool_) for s in stored]

    def units(side: int, where: np.ndarray, width: int, budget: Budget) -> Units:
        return rescore.units_of(stored[side], where, weights[side], width, budget)

    every, full = Budget(), student.dim
    found["tokens"] = rescore.maxsim(
        units(0, tokens[0], full, every), units(1, tokens[1], full, every)
    )
    for width in settings.widths:
        r = width or full
        asked = units(0, begins[0], r, every)
        for count in settings.budgets:
            given = units(1, begins[1], r, Budget(count or None, policy="merge"))
            found[f"{count or 'all'}x{r}"] = rescore.maxsim(asked, given)
    return {name: ndcg10(pool.data, scores) for name, scores in found.items()}


def ndcg10(data: RetrievalSet, scores: F32) -> F64:
    """nDCG@10 of every query over all documents of the pool, ties by id."""
    ids = np.array(data.document_ids)
    values = np.empty(len(data.queries))
    for row, name in enumerate(data.query_ids):
        best = np.lexsort((ids, -scores[row]))[:10]
        values[row] = ndcg(ids[best].tolist(), data.judgements[name])
    return values


def _side(student: Student, reader: Reader) -> Side:
    rows = np.arange(len(reader.texts))
    return side_of(student, reader.texts, *encode(reader, rows))


def _stored(side: Side) -> StoredStates:
    states, inner = _array(side.states), _array(side.inner)
    # Full precision is served where half precision is stored elsewhere.
    return StoredStates(side.texts.tokens, states, inner, _array(side.pooled))  # type: ignore[arg-type]


def _lexical_weights(student: Student, queries: Side, documents: Side) -> list[F32]:
    """As the saved model will weigh tokens."""
    if student.lexical is None:
        return [_array(side.importance) for side in (queries, documents)]
    head = student.lexical.to_numpy()
    tokens = documents.texts.tokens
    return [
        head.of_query(queries.texts.tokens.ids),
        head.of_document(tokens, _array(documents.inner)),
    ]


def _unknown(texts: Texts) -> int | None:
    return None if texts.unknown < 0 else texts.unknown


def _array(tensor: torch.Tensor) -> F32:
    array: F32 = tensor.detach().float().cpu().numpy()
    return array
