"""Fusion adds the views that are on; what is off is absent; shares sum to the fused score."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import random_encoded, text_of_words
from hplus.errors import InputError
from hplus.types import Encoded, Scores, concatenate
from hplus.views import global_, lexical, phrase
from hplus.views.fusion import VIEWS, check_alphas, score
from hplus.views.lexical import Spelling

some = settings(deadline=None, max_examples=80)
TEXT = text_of_words()
some_alphas = st.dictionaries(
    st.sampled_from(VIEWS), st.floats(0, 4, allow_subnormal=False), min_size=1
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Encoded, Encoded]:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(0, 5), max_size=5))
    query = random_encoded(random, [draw(st.integers(0, 5))])
    return query, random_encoded(random, lengths, dropped=[n // 2 for n in lengths], merged=True)


def explained(pair: tuple[Encoded, Encoded], alphas: dict[str, float]) -> Scores:
    query, documents = pair
    return score(query, documents, alphas, query_text=TEXT, document_texts=[TEXT] * len(documents))


@some
@given(pairs(), some_alphas)
def test_fused_is_the_weighted_sum_of_the_views_that_are_on(
    pair: tuple[Encoded, Encoded], alphas: dict[str, float]
) -> None:
    """eq:fusion over normalised scores."""
    query, documents = pair
    single = {
        "global": global_.score(query.global_, documents.global_),
        "phrase": phrase.score(query.units, documents.units) / phrase.scale(query.units),
        "lexical": lexical.score(query.lexical, documents.lexical) / lexical.scale(query.lexical),
    }
    scores = score(query, documents, alphas)
    expected = [
        sum(alpha * single[view][i] for view, alpha in alphas.items())
        for i in range(len(documents))
    ]
    assert scores.fused.tolist() == pytest.approx(expected, abs=1e-6)
    assert len(scores) == len(documents)
    assert scores.explanations is None
    found = {"global": scores.global_, "phrase": scores.phrase, "lexical": scores.lexical}
    for view in VIEWS:
        own = found[view]
        assert (own is not None) == (view in alphas)
        if own is not None:
            assert own.tolist() == pytest.approx(single[view].tolist(), abs=1e-6)
    assert (scores.phrase_raw is None) == ("phrase" not in alphas)
    assert (scores.lexical_raw is None) == ("lexical" not in alphas)
    if scores.phrase_raw is not None:
        assert scores.phrase_raw.tolist() == phrase.score(query.units, documents.units).tolist()
    if scores.lexical_raw is not None:
        assert (
            scores.lexical_raw.tolist() == lexical.score(query.lexical, documents.lexical).tolist()
        )


@some
@given(pairs(), some_alphas)
def test_explanations_sum_exactly(pair: tuple[Encoded, Encoded], alphas: dict[str, float]) -> None:
    query, documents = pair
    scores = explained(pair, alphas)
    assert scores.explanations is not None
    assert len(scores.explanations) == len(documents)
    for i, why in enumerate(scores.explanations):
        assert list(why.shares) == [view for view in VIEWS if view in alphas]
        # Left to right: from Python 3.12 on, `sum` of floats rounds differently.
        assert reduce(add, why.shares.values()) == why.fused == scores.fused[i]
        phrase_sum = reduce(add, [match.contribution for match in why.phrase], 0.0)
        lexical_sum = reduce(add, [match.contribution for match in why.lexical], 0.0)
        if scores.phrase is not None and scores.phrase_raw is not None:
            assert phrase_sum == why.phrase_raw == scores.phrase_raw[i]
            assert why.shares["phrase"] == alphas["phrase"] * scores.phrase[i]
            assert len(why.phrase) == len(query.units.weights)
        else:
            assert (why.phrase, why.phrase_raw) == ([], None)
        if scores.lexical is not None and scores.lexical_raw is not None:
            assert lexical_sum == why.lexical_raw == scores.lexical_raw[i]
            assert why.shares["lexical"] == alphas["lexical"] * scores.lexical[i]
        else:
            assert (why.lexical, why.lexical_raw) == ([], None)
        if scores.global_ is not None:
            assert why.shares["global"] == alphas["global"] * scores.global_[i]
        assert why.dropped == phrase.dropped(documents.dropped, i, TEXT)


@some
@given(pairs(), some_alphas)
def test_explaining_changes_no_score(
    pair: tuple[Encoded, Encoded], alphas: dict[str, float]
) -> None:
    assert explained(pair, alphas).fused.tolist() == score(*pair, alphas).fused.tolist()


def test_explanations_cite_the_texts_and_spell_the_terms() -> None:
    random = np.random.default_rng(8)
    query, documents = random_encoded(random, [2]), random_encoded(random, [3, 3], dropped=[1, 1])
    shouted = "\u00b7".join(TEXT.split())
    scores = score(
        query,
        documents,
        dict.fromkeys(VIEWS, 1.0),
        query_text=TEXT,
        document_texts=[TEXT, shouted],
        spelling=Spelling(lambda token: f"<{token}>"),
    )
    assert scores.explanations is not None
    for i, (why, text) in enumerate(zip(scores.explanations, [TEXT, shouted], strict=True)):
        for s, match in enumerate(why.phrase):
            ((start, end),) = query.units.spans_of(s)
            assert match.text == TEXT[start:end]
            likeness = documents[i].units.vectors @ query.units.vectors[s]
            ((start, end),) = documents[i].units.spans_of(int(likeness.argmax()))
            assert match.document_text == text[start:end]
        assert [term.token for term in why.lexical] == [f"<{term.id}>" for term in why.lexical]
        assert len(why.dropped) == 1
    shared = [
        set(query.lexical.ids.tolist()) & set(documents[i].lexical.ids.tolist()) for i in range(2)
    ]
    assert [{term.id for term in why.lexical} for why in scores.explanations] == shared


def test_ties_are_ranked_by_index() -> None:
    random = np.random.default_rng(9)
    # Along the axes products are exact, wherever in the batch a document stands.
    axes = np.eye(8, dtype=np.float32)
    query, other = random_encoded(random, [2]), random_encoded(random, [3])
    query = replace(query, global_=axes[:1], units=replace(query.units, vectors=axes[:2]))
    other = replace(other, global_=axes[1:2], units=replace(other.units, vectors=axes[1:4]))
    documents = concatenate([other, query, other, query, other])
    ranking = score(query, documents, dict.fromkeys(VIEWS, 1.0)).ranking()
    assert ranking.dtype == np.int64
    assert ranking.tolist() == [1, 3, 0, 2, 4]


@pytest.mark.parametrize(
    ("alphas", "message"),
    [
        ({}, "no view"),
        (
            {"global": 1, "dense": 1},
            r"\['dense'\]; the views are \('global', 'phrase', 'lexical'\)",
        ),
        ({"global": -0.1}, "of 0 or more, got {'global': -0.1}"),
        ({"phrase": math.nan}, "nan"),
        ({"lexical": math.inf}, "inf"),
        ({"lexical": "1"}, "expected fusion weights of 0 or more, got {'lexical': '1'}"),
        ({"lexical": None}, "None"),
    ],
)
def test_impossible_alphas(alphas: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_alphas(alphas)
    encoded = random_encoded(np.random.default_rng(0), [1])
    with pytest.raises(InputError, match=message):
        score(encoded, encoded, alphas)


def test_alphas_come_in_the_order_of_the_views_and_zero_is_on() -> None:
    checked = check_alphas({"lexical": 1, "global": 0})
    assert list(checked.items()) == [("global", 0.0), ("lexical", 1.0)]
    encoded = random_encoded(np.random.default_rng(0), [2, 2])
    scores = score(encoded[0], encoded, {"global": 0.0})
    assert scores.global_ is not None
    assert scores.fused.tolist() == [0, 0]


def test_what_cannot_be_scored() -> None:
    encoded = random_encoded(np.random.default_rng(0), [1, 2])
    with pytest.raises(InputError, match=r"expected one query, got 2; take encoded\[i\]"):
        score(encoded, encoded, {"phrase": 1})
    with pytest.raises(InputError, match="the query is 3 wide, the documents 8"):
        score(encoded[0].at(width=3), encoded, {"phrase": 1})
    with pytest.raises(InputError, match="2 documents, but 1 texts to explain them"):
        score(encoded[0], encoded, {"phrase": 1}, document_texts=[TEXT])
