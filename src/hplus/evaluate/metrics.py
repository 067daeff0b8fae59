"""What a ranking is worth: nDCG as in the paper, recall, reciprocal rank, precision.

Each measure is a plain function of one ranking and one query's grades, and equals trec_eval's. A
grade above 0 is relevant, a negative one counts as 0, a document that nobody judged counts as 0,
and a query without a relevant document has the value 0. `measure` evaluates a whole run by the
names of measures.

nDCG has exponential gain, 2^grade - 1, unless linear gain is requested, as trec_eval has it. Equal
scores rank by document id, ascending (trec_eval: descending).

Cost: about 0.5 s for 1,000 queries with 1,000 documents each, nearly all of it sorting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from hplus.errors import InputError
from hplus.types import F64

Gain = Literal["exponential", "linear"]
Run = Mapping[str, Mapping[str, float]]
"""Query -> document -> score."""
Judgements = Mapping[str, Mapping[str, int]]
"""Query -> document -> grade."""


def ndcg(
    ranking: Sequence[str],
    grades: Mapping[str, int],
    *,
    depth: int = 10,
    gain: Gain = "exponential",
) -> float:
    """nDCG@depth of one ranking, best document first; 0 where nothing is relevant.

    >>> round(ndcg(["b", "a"], {"a": 1}), 4)
    0.6309
    """
    _check(depth)

    def gains(values: Sequence[int]) -> float:
        g = np.maximum(np.array(values[:depth], float), 0)
        g = np.exp2(g) - 1 if gain == "exponential" else g
        return float(g @ (1 / np.log2(np.arange(len(g)) + 2)))

    ideal = gains(sorted(grades.values(), reverse=True))
    found = gains([grades.get(document, 0) for document in ranking[:depth]])
    return found / ideal if ideal else 0.0


def oracle_ndcg(
    pool: Collection[str],
    grades: Mapping[str, int],
    *,
    depth: int = 10,
    gain: Gain = "exponential",
) -> float:
    """The best nDCG@depth that any order of the pool can reach: the limit of rescoring.

    >>> round(oracle_ndcg({"n", "b"}, {"a": 1, "b": 1}), 4)
    0.6131
    """
    best = sorted(set(pool), key=lambda document: -grades.get(document, 0))
    return ndcg(best, grades, depth=depth, gain=gain)


def recall(
    ranking: Sequence[str], grades: Mapping[str, int], *, depth: int, top_grade: bool = False
) -> float:
    """The share of the relevant documents among the first `depth`.

    With `top_grade` only the best grade given for this query is relevant.

    >>> recall(["a", "n", "b"], {"a": 1, "b": 2}, depth=2)
    0.5
    >>> recall(["a", "n", "b"], {"a": 1, "b": 2}, depth=2, top_grade=True)
    0.0
    """
    _check(depth)
    least = max(grades.values(), default=0) if top_grade else 1
    wanted = {document for document, grade in grades.items() if grade >= max(1, least)}
    return len(wanted.intersection(ranking[:depth])) / len(wanted) if wanted else 0.0


def reciprocal_rank(
    ranking: Sequence[str], grades: Mapping[str, int], *, depth: int | None = None
) -> float:
    """1 / the rank of the first relevant document; 0 where none is among the first `depth`.

    >>> reciprocal_rank(["n", "a"], {"a": 1})
    0.5
    """
    _check(depth)
    for rank, document in enumerate(ranking[:depth], start=1):
        if grades.get(document, 0) > 0:
            return 1 / rank
    return 0.0


def average_precision(
    ranking: Sequence[str], grades: Mapping[str, int], *, depth: int | None = None
) -> float:
    """The mean over all relevant documents of the precision at their rank, 0 for those not found.

    >>> grades = {"a": 1, "b": 2, "lost": 1, "lost too": 1}
    >>> average_precision(["a", "n", "m", "b"], grades)  # (1/1 + 2/4 + 0 + 0) / 4
    0.375
    """
    _check(depth)
    relevant = sum(grade > 0 for grade in grades.values())
    found, total = 0, 0.0
    for rank, document in enumerate(ranking[:depth], start=1):
        if grades.get(document, 0) > 0:
            found += 1
            total += found / rank
    return total / relevant if relevant else 0.0


@dataclass(frozen=True)
class Measured:
    """One run's values, f64[queries] by measure, in the order of the judgements' queries.

    `missing` names the judged queries that the run lacks; they count as zero.
    """

    values: dict[str, F64]
    missing: list[str]


def measure(run: Run, judgements: Judgements, names: Sequence[str]) -> Measured:
    """Every judged query by every measure named; queries without judgements are ignored.

    Names: ndcg@10, ndcg-linear@10, recall@100, recall-top@100 (the query's best grade only),
    mrr, mrr@10, map, map@1000.

    >>> found = measure({"q": {"a": 0.2, "b": 0.9}}, {"q": {"a": 1}, "r": {"b": 1}}, ["mrr"])
    >>> found.values["mrr"].tolist(), found.missing
    ([0.5, 0.0], ['r'])
    """
    if not judgements:
        raise InputError("expected at least one judged query, got none")
    measures = {name: _named(name) for name in names}
    rankings = [ranking_of(run, query) for query in judgements]
    values = {
        name: np.array(
            [value(*pair) for pair in zip(rankings, judgements.values(), strict=True)], np.float64
        )
        for name, value in measures.items()
    }
    return Measured(values, [query for query in judgements if query not in run])


def ranking_of(run: Run, query: str) -> list[str]:
    """One query's documents by falling score, ties by id ascending; none if the run lacks it."""
    scores = run.get(query, {})
    for document, score in scores.items():
        if not math.isfinite(score):
            raise InputError(
                f"query {query!r}: document {document!r} has the score {score}; "
                "a ranking needs numbers"
            )
    # A stable sort by score leaves equal scores in the order of the ids.
    return sorted(sorted(scores), key=lambda document: scores[document], reverse=True)


_MEASURES: dict[str, Callable[..., float]] = {
    "ndcg": ndcg,
    "ndcg-linear": partial(ndcg, gain="linear"),
    "recall": recall,
    "recall-top": partial(recall, top_grade=True),
    "mrr": reciprocal_rank,
    "map": average_precision,
}
_WHOLE = ("mrr", "map")  # measures that may go without a depth


def _named(name: str) -> Callable[[Sequence[str], Mapping[str, int]], float]:
    match = re.fullmatch(r"([a-z-]+)(?:@([1-9][0-9]*))?", name)
    if match is None or match[1] not in _MEASURES or not (match[2] or match[1] in _WHOLE):
        known = [name if name in _WHOLE else f"{name}@N" for name in _MEASURES]
        raise InputError(
            f"unknown measure {name!r}; known: {', '.join(known)}, mrr@N, map@N with N of 1 or more"
        )
    value = _MEASURES[match[1]]
    return partial(value, depth=int(match[2])) if match[2] else value


def _check(depth: int | None) -> None:
    if depth is not None and depth < 1:
        raise InputError(f"expected a depth of 1 or more, got {depth}")
