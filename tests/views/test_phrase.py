"""Weighted MaxSim equals plain loops, padding never wins, an explanation is its score."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    encode_units,
    random_encoded,
    random_units,
    spans_of_words,
    text_of_words,
)
from hplus.types import Span, Units, offsets_of
from hplus.units.select import Budget
from hplus.views import phrase

some = settings(deadline=None, max_examples=80)
TEXT = text_of_words()


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Units, Units]:
    """A query and documents, some of them without units, units of one or more spans."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    query = random_encoded(random, [draw(st.integers(0, 6))]).units
    lengths = draw(st.lists(st.integers(0, 6), max_size=5))
    return query, random_encoded(random, lengths, merged=draw(st.booleans())).units


def one(documents: Units, i: int) -> Units:
    return documents.take(np.array([i]))


def score_by_hand(query: Units, documents: Units) -> list[float]:
    """eq:phrase_score as it is written: sum over s, max over t, dot product."""
    scores = []
    for i in range(len(documents)):
        score = 0.0
        for s in range(len(query.weights)):
            best = None
            for t in range(documents.offsets[i], documents.offsets[i + 1]):
                similarity = 0.0
                for x, y in zip(query.vectors[s], documents.vectors[t], strict=True):
                    similarity += float(x) * float(y)
                best = similarity if best is None else max(best, similarity)
            score += float(query.weights[s]) * (best or 0.0)
        scores.append(score)
    return scores


def leeway(query: Units) -> float:
    """How far float32 similarities may be off, times the weights they are summed with."""
    return 1e-6 * max(1.0, float(query.weights.sum()))


def on_axis(*texts: list[float]) -> Units:
    """Units in the plane, each given by its cosine with the first axis."""
    cosines = np.array([cosine for text in texts for cosine in text])
    offsets = offsets_of([len(text) for text in texts])
    word = np.concatenate([np.arange(len(text)) for text in [[], *texts]])
    vectors = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1).astype(np.float32)
    weights = np.ones(len(cosines), np.float32)
    bounds = np.arange(len(cosines) + 1)
    return encode_units(Units(vectors, weights, offsets, spans_of_words(word), bounds)).units


@some
@given(pairs())
def test_score_equals_three_loops(pair: tuple[Units, Units]) -> None:
    scores = phrase.score(*pair)
    assert scores.dtype == np.float64
    assert scores.tolist() == pytest.approx(score_by_hand(*pair), abs=leeway(pair[0]))


@some
@given(pairs())
def test_scaling_the_query_vectors_does_what_the_weights_do(pair: tuple[Units, Units]) -> None:
    """So any engine with plain dot-product MaxSim can compute the weighted score."""
    query, documents = pair
    scaled = query.vectors * query.weights[:, None]
    plain = [
        float((scaled @ one(documents, i).vectors.T).max(axis=1).sum())
        if len(one(documents, i).weights)
        else 0
        for i in range(len(documents))
    ]
    assert phrase.score(query, documents).tolist() == pytest.approx(plain, abs=leeway(query))


@some
@given(pairs())
def test_a_document_scores_alike_alone_and_among_others(pair: tuple[Units, Units]) -> None:
    query, documents = pair
    alone = [phrase.score(query, one(documents, i))[0] for i in range(len(documents))]
    assert phrase.score(query, documents).tolist() == pytest.approx(alone, abs=leeway(query))


@some
@given(pairs())
def test_the_normalised_score_lies_between_minus_one_and_one(pair: tuple[Units, Units]) -> None:
    query, documents = pair
    normalised = phrase.score(query, documents) / phrase.scale(query)
    assert (np.abs(normalised) <= 1 + 1e-6).all()
    if len(query.weights):
        assert phrase.scale(query) == pytest.approx(sum(query.weights.tolist()))
        assert phrase.score(query, query)[0] / phrase.scale(query) == pytest.approx(1)
    else:
        assert normalised.tolist() == [0] * len(documents)


def test_padding_never_beats_a_negative_similarity() -> None:
    query = on_axis([1.0])
    documents = on_axis([-0.5], [-0.25, -0.5, -0.75], [], [-1.0, -0.75])
    assert phrase.score(query, documents).tolist() == pytest.approx([-0.5, -0.25, 0, -0.75])


def test_a_document_without_units_takes_none_from_its_neighbours() -> None:
    query = on_axis([1.0])
    documents = on_axis([], [1.0], [], [], [0.5], [])
    assert phrase.score(query, documents).tolist() == [0, 1, 0, 0, 0.5, 0]
    assert phrase.score(query, on_axis([], [])).tolist() == [0, 0]
    assert phrase.score(on_axis([]), documents).tolist() == [0] * 6


@some
@given(pairs())
def test_an_explanation_sums_to_its_score_and_cites_the_best_unit(
    pair: tuple[Units, Units],
) -> None:
    query, documents = pair
    scores = phrase.score(query, documents)
    for i in range(len(documents)):
        matches = phrase.explain(query, TEXT, documents, i, TEXT)
        # Left to right: from Python 3.12 on, `sum` of floats rounds differently.
        assert reduce(add, [match.contribution for match in matches], 0.0) == scores[i]
        own = one(documents, i)
        for s, match in enumerate(matches):
            assert match.spans == query.spans_of(s)
            assert match.text == words_at(match.spans)
            assert match.weight == query.weights[s]
            assert match.contribution == match.weight * match.similarity
            if not len(own.weights):
                assert (match.document_spans, match.document_text) == ([], "")
                assert match.similarity == 0
                continue
            likeness = [float(query.vectors[s] @ vector) for vector in own.vectors]
            assert match.similarity == pytest.approx(max(likeness), abs=1e-6)
            best = [own.spans_of(t) for t, x in enumerate(likeness) if x > max(likeness) - 1e-6]
            assert match.document_spans in best
            assert match.document_text == words_at(match.document_spans)


@some
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 3), max_size=5), st.booleans())
def test_dropped_units_are_listed_with_their_text(
    seed: int, lengths: list[int], merged: bool
) -> None:
    random = np.random.default_rng(seed)
    dropped = random_encoded(random, [2] * len(lengths), dropped=lengths, merged=merged).dropped
    for i in range(len(lengths)):
        own = one(dropped, i)
        lost = phrase.dropped(dropped, i, TEXT)
        assert [unit.weight for unit in lost] == own.weights.tolist()
        for u, unit in enumerate(lost):
            assert unit.spans == own.spans_of(u)
            assert unit.text == words_at(unit.spans)


def test_the_first_of_equal_units_is_cited() -> None:
    query, documents = on_axis([1.0]), on_axis([0.5, 0.75, 0.75])
    (match,) = phrase.explain(query, TEXT, documents, 0, TEXT)
    assert (match.document_text, match.similarity) == ("001", 0.75)


def test_importance_of_the_document_does_not_count() -> None:
    random = np.random.default_rng(4)
    query, documents = random_encoded(random, [3]).units, random_encoded(random, [4, 2]).units
    heavier = replace(documents, weights=documents.weights * 7)
    assert phrase.score(query, heavier).tolist() == phrase.score(query, documents).tolist()


def test_pieces_are_joined_by_an_ellipsis() -> None:
    assert phrase.cited(TEXT, [Span(0, 3), Span(8, 11)]) == "000 … 002"
    assert phrase.cited(TEXT, []) == ""


def test_a_budget_of_drop_scores_only_what_it_keeps() -> None:
    units = random_units(np.random.default_rng(5), [9, 4])
    query = random_encoded(np.random.default_rng(6), [3]).units
    kept = encode_units(units, Budget(2)).units
    everything = encode_units(units).units
    assert (phrase.score(query, kept) <= phrase.score(query, everything)).all()
    first_two = [everything.vectors[everything.offsets[i] :][:2] for i in range(2)]
    expected = [float((query.vectors @ v.T).max(axis=1) @ query.weights) for v in first_two]
    assert phrase.score(query, kept).tolist() == pytest.approx(expected, abs=leeway(query))


def words_at(spans: list[Span]) -> str:
    """Word k is at 4k:4k + 3."""
    return " … ".join(f"{span.start // 4:03d}" for span in spans)
