"""Fusion: a weighted sum of the normalised scores of the views that are on (eq:fusion)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from numbers import Real
from operator import add

import numpy as np

from hplus.errors import InputError
from hplus.types import F64, Encoded, Explanation, Scores, TokenMatch, UnitMatch
from hplus.views import global_, lexical, phrase
from hplus.views.lexical import Spelling

VIEWS = ("global", "phrase", "lexical")


def check_alphas(alphas: Mapping[str, float]) -> dict[str, float]:
    """alpha_G, alpha_P, alpha_L of the views that are on, in that order."""
    if not isinstance(alphas, Mapping):
        raise InputError(f"expected fusion weights by view, got {type(alphas).__name__}")
    unknown = sorted(set(alphas) - set(VIEWS), key=str)
    if unknown or not alphas:
        raise InputError(f"fusion weights for {unknown or 'no view'}; the views are {VIEWS}")
    bad = {
        name: a
        for name, a in alphas.items()
        if not (isinstance(a, Real) and np.isfinite(a) and a >= 0)
    }
    if bad:
        raise InputError(f"expected fusion weights of 0 or more, got {bad}")
    return {view: float(alphas[view]) for view in VIEWS if view in alphas}


def fuse(normalised: Mapping[str, F64], alphas: Mapping[str, float]) -> F64:
    """eq:fusion over the views present; one that is off is absent, not zero."""
    first, *rest = [alpha * normalised[view] for view, alpha in alphas.items()]
    for share in rest:
        first = first + share
    return first


def score(
    query: Encoded,
    documents: Encoded,
    alphas: Mapping[str, float],
    *,
    query_text: str = "",
    document_texts: Sequence[str] | None = None,
    spelling: Spelling | None = None,
) -> Scores:
    """All views that are on, and their sum; explained when the documents' texts are given."""
    alphas = check_alphas(alphas)
    spelling = spelling or Spelling()
    _check_shapes(query, documents, document_texts)
    raw: dict[str, F64] = {}
    units: list[list[UnitMatch]] = []
    tokens: list[list[TokenMatch]] = []
    # An explanation holds what its score is the sum of: nothing is matched twice.
    if "phrase" in alphas and document_texts is not None:
        units = [
            phrase.explain(query.units, query_text, documents.units, i, text)
            for i, text in enumerate(document_texts)
        ]
        raw["phrase"] = _sums(units)
    elif "phrase" in alphas:
        raw["phrase"] = phrase.score(query.units, documents.units)
    if "lexical" in alphas and document_texts is not None:
        tokens = [
            lexical.explain(query.lexical, documents.lexical.take(np.array([i])), spelling.token)
            for i in range(len(documents))
        ]
        raw["lexical"] = _sums(tokens)
    elif "lexical" in alphas:
        raw["lexical"] = lexical.score(query.lexical, documents.lexical)
    normalised = _normalised(query, documents, alphas, raw)
    fused = fuse(normalised, alphas)
    query_words = spelling.words(query_text) if tokens else ()

    def explanation(i: int, text: str) -> Explanation:
        return Explanation(
            phrase=units[i] if units else [],
            lexical=tokens[i] if tokens else [],
            shares={view: alpha * float(normalised[view][i]) for view, alpha in alphas.items()},
            dropped=phrase.dropped(documents.dropped, i, text),
            phrase_raw=float(raw["phrase"][i]) if "phrase" in raw else None,
            lexical_raw=float(raw["lexical"][i]) if "lexical" in raw else None,
            fused=float(fused[i]),
            words=lexical.by_word(tokens[i], query_words) if tokens else [],
        )

    return Scores(
        global_=normalised.get("global"),
        phrase=normalised.get("phrase"),
        phrase_raw=raw.get("phrase"),
        lexical=normalised.get("lexical"),
        lexical_raw=raw.get("lexical"),
        fused=fused,
        explanations=None
        if document_texts is None
        else [explanation(i, text) for i, text in enumerate(document_texts)],
    )


def _normalised(
    query: Encoded, documents: Encoded, alphas: Mapping[str, float], raw: Mapping[str, F64]
) -> dict[str, F64]:
    """The scores that are fused: a cosine, and raw scores over the scale of the query."""
    normalised: dict[str, F64] = {}
    if "global" in alphas:
        normalised["global"] = global_.score(query.global_, documents.global_)
    if "phrase" in alphas:
        normalised["phrase"] = raw["phrase"] / phrase.scale(query.units)
    if "lexical" in alphas:
        normalised["lexical"] = raw["lexical"] / lexical.scale(query.lexical)
    return normalised


def _sums(matches: Sequence[Sequence[UnitMatch | TokenMatch]]) -> F64:
    """What the matches of each document contribute, added one by one in their order, f64[n]."""
    return np.array([reduce(add, (match.contribution for match in own), 0.0) for own in matches])


def _check_shapes(query: Encoded, documents: Encoded, texts: Sequence[str] | None) -> None:
    if len(query) != 1:
        raise InputError(f"expected one query, got {len(query)}; take encoded[i]")
    sides = (query, documents)
    for left, right in (
        tuple(side.global_.shape[1] for side in sides),
        tuple(side.units.width for side in sides),
    ):
        if left != right:
            raise InputError(f"the query is {left} wide, the documents {right}; use at(width=)")
    if texts is not None and len(texts) != len(documents):
        raise InputError(f"{len(documents)} documents, but {len(texts)} texts to explain them")
