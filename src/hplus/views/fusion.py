"""Fusion: a weighted sum of the normalised scores of the views that are on (eq:fusion)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real

import numpy as np

from hplus.errors import InputError
from hplus.types import F64, Encoded, Explanation, Scores
from hplus.views import global_, lexical, phrase

VIEWS = ("global", "phrase", "lexical")


def check_alphas(alphas: Mapping[str, float]) -> dict[str, float]:
    """alpha_G, alpha_P, alpha_L of the views that are on, in that order."""
    unknown = sorted(set(alphas) - set(VIEWS))
    if unknown or not alphas:
        raise InputError(f"fusion weights for {unknown or 'no view'}; the views are {VIEWS}")
    bad = {
        name: a
        for name, a in alphas.items()
        if not (isinstance(a, Real) and np.isfinite(a) and a >= 0)
    }
    if bad:
        raise InputError(f"fusion weights must be numbers of 0 or more, but {bad} came")
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
    spell: Callable[[int], str] = str,
) -> Scores:
    """All views that are on, and their sum; explained when the documents' texts are given."""
    alphas = check_alphas(alphas)
    _check_shapes(query, documents, document_texts)
    raw: dict[str, F64] = {}
    normalised: dict[str, F64] = {}
    if "global" in alphas:
        normalised["global"] = global_.score(query.global_, documents.global_)
    if "phrase" in alphas:
        raw["phrase"] = phrase.score(query, documents)
        normalised["phrase"] = raw["phrase"] / phrase.scale(query)
    if "lexical" in alphas:
        raw["lexical"] = lexical.score(query, documents)
        normalised["lexical"] = raw["lexical"] / lexical.scale(query)
    fused = fuse(normalised, alphas)

    def explain(i: int, text: str) -> Explanation:
        return Explanation(
            phrase=phrase.explain(query, query_text, documents, i, text)
            if "phrase" in alphas
            else [],
            lexical=lexical.explain(query, documents[i], spell) if "lexical" in alphas else [],
            shares={view: alpha * float(normalised[view][i]) for view, alpha in alphas.items()},
            dropped=phrase.dropped(documents, i, text),
            phrase_raw=float(raw["phrase"][i]) if "phrase" in raw else None,
            lexical_raw=float(raw["lexical"][i]) if "lexical" in raw else None,
            fused=float(fused[i]),
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
        else [explain(i, text) for i, text in enumerate(document_texts)],
    )


def _check_shapes(query: Encoded, documents: Encoded, texts: Sequence[str] | None) -> None:
    if len(query) != 1:
        raise InputError(f"one query expected, {len(query)} came; take encoded[i]")
    for name in ("global_", "vectors"):
        left, right = (getattr(side, name).shape[1] for side in (query, documents))
        if left != right:
            raise InputError(
                f"the query is {left} wide, the documents {right}; cut with at(width=)"
            )
    if texts is not None and len(texts) != len(documents):
        raise InputError(f"{len(documents)} documents, but {len(texts)} texts to explain them")
