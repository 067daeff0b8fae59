"""The lexical view against dictionaries: max pooling, exact matching, exact explanations."""

from __future__ import annotations

import math
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import random_encoded
from hplus import HPlus
from hplus.types import Lexical, TokenMatch, Tokens, offsets_of
from hplus.views import lexical
from hplus.views.lexical import by_word, words_of

some = settings(deadline=None, max_examples=100)
seeds = st.integers(0, 2**32 - 1)
UNKNOWN = 3
ids_of_texts = st.lists(st.lists(st.integers(0, 7), max_size=10), max_size=5)


def tokens_of(texts: list[list[int]]) -> Tokens:
    ids = np.array([token for text in texts for token in text], np.int32)
    return Tokens(
        texts=("",) * len(texts),
        ids=ids,
        spans=np.zeros((len(ids), 2), np.int32),
        offsets=offsets_of([len(text) for text in texts]),
    )


def terms_of(view: Lexical, i: int) -> dict[int, float]:
    rows = slice(view.offsets[i], view.offsets[i + 1])
    return dict(zip(view.ids[rows].tolist(), view.weights[rows].tolist(), strict=True))


def random_views(seed: int, count: int) -> tuple[Lexical, Lexical]:
    random = np.random.default_rng(seed)
    return random_encoded(random, [1]).lexical, random_encoded(random, [1] * count).lexical


@some
@given(ids_of_texts, seeds, st.sampled_from([UNKNOWN, None]))
@example([[], [UNKNOWN], []], 0, UNKNOWN)
def test_weights_are_the_largest_importance_of_each_id(
    texts: list[list[int]], seed: int, unknown: int | None
) -> None:
    tokens = tokens_of(texts)
    importance = np.random.default_rng(seed).gamma(1.0, size=len(tokens.ids)).astype(np.float32)
    found = lexical.represent(tokens, importance, unknown)
    ids, weights, offsets = found.ids, found.weights, found.offsets
    assert (ids.dtype.str, weights.dtype.str, offsets.dtype.str) == ("<i4", "<f4", "<i8")
    assert len(offsets) == len(texts) + 1
    assert len(ids) == len(weights) == offsets[-1]
    row = 0
    for i, text in enumerate(texts):
        expected: dict[int, float] = {}
        for token in text:
            if token != unknown:
                expected[token] = max(expected.get(token, 0), float(importance[row]))
            row += 1
        own = slice(offsets[i], offsets[i + 1])
        pairs = list(zip(ids[own].tolist(), weights[own].tolist(), strict=True))
        assert pairs == sorted(expected.items())


def test_without_an_unknown_token_every_id_counts() -> None:
    tokens = tokens_of([[UNKNOWN, 0]])
    found = lexical.represent(tokens, np.ones(2, np.float32), None)
    assert found.ids.tolist() == [0, UNKNOWN]


@some
@given(seeds, st.integers(0, 6))
def test_score_equals_a_loop_over_dictionaries(seed: int, count: int) -> None:
    """eq:lexical_score."""
    query, documents = random_views(seed, count)
    asked = terms_of(query, 0)
    expected = []
    for i in range(count):
        own = terms_of(documents, i)
        expected.append(sum(weight * own[token] for token, weight in asked.items() if token in own))
    scores = lexical.score(query, documents)
    assert scores.dtype == np.float64
    assert scores.tolist() == pytest.approx(expected, rel=1e-12)
    scale = lexical.scale(query)
    assert scale == pytest.approx(sum(weight**2 for weight in asked.values()) or 1.0)
    if asked:
        assert lexical.score(query, query)[0] == pytest.approx(scale)


@some
@given(seeds, st.integers(0, 6))
def test_an_explanation_lists_the_shared_terms_and_sums_to_the_score(seed: int, count: int) -> None:
    query, documents = random_views(seed, count)
    scores = lexical.score(query, documents)
    for i in range(count):
        asked, own = terms_of(query, 0), terms_of(documents, i)
        matches = lexical.explain(query, documents.take(np.array([i])), lambda token: f"<{token}>")
        assert [match.id for match in matches] == sorted(set(asked) & set(own))
        for match in matches:
            assert match.token == f"<{match.id}>"
            assert (match.query_weight, match.document_weight) == (asked[match.id], own[match.id])
            assert match.contribution == match.query_weight * match.document_weight
        # Left to right: from Python 3.12 on, `sum` of floats rounds differently.
        assert reduce(add, [match.contribution for match in matches], 0.0) == scores[i]


def test_texts_without_terms_share_nothing() -> None:
    nothing = random_encoded(np.random.default_rng(0), []).lexical
    query, documents = random_views(1, 3)
    assert lexical.score(query, nothing).tolist() == []
    empty = Lexical(query.ids[:0], query.weights[:0], np.zeros(2, np.int64))
    assert lexical.score(empty, documents).tolist() == [0, 0, 0]
    assert lexical.score(query, empty).tolist() == [0]
    assert lexical.scale(empty) == 1
    assert lexical.explain(empty, documents.take(np.array([0])), str) == []


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=6),
    st.dictionaries(st.integers(0, 12), st.floats(0.1, 5), max_size=9),
)
def test_words_have_the_tokens_of_a_text_each_once(
    words: list[list[int]], shared: dict[int, float]
) -> None:
    matches = [TokenMatch(i, f"<{i}>", 1.0, own, own) for i, own in sorted(shared.items())]
    query_words = [(f"w{n}", tuple(ids)) for n, ids in enumerate(words)]
    found = by_word(matches, query_words)
    assert math.fsum(m.contribution for m in found) == pytest.approx(math.fsum(shared.values()))
    falling = [match.contribution for match in found]
    assert falling == sorted(falling, reverse=True)
    spoken = {i for ids in words for i in ids}
    for match in found:
        if match.text.startswith("<"):
            assert int(match.text[1:-1]) not in spoken
            continue
        ids = set(words[int(match.text[1:])])
        assert match.whole == (ids <= set(shared))
        assert match.contribution <= sum(shared.get(i, 0) for i in ids) + 1e-9


def test_pieces_are_grouped_by_the_words_of_the_text(mini: HPlus) -> None:
    tokenizer = mini.checkpoint.backbone.tokenizer
    found = words_of(tokenizer.tokens(["Hypokalaemia, hypokalaemia & β-blockers"]))
    assert [word for word, _ in found] == ["Hypokalaemia", ",", "&", "β", "-", "blockers"]
    assert [tokenizer.token(i) for i in found[0][1]] == ["h", "##yp", "##oka", "##la", "##emia"]
    assert words_of(tokenizer.tokens([""])) == []
