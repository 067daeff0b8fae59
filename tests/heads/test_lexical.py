"""The lexical head: BM25 to begin with, by a second library; then what it learned."""

from __future__ import annotations

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.heads.lexical import HALF, LENGTH, SHARE, LexicalHead
from hplus.types import Tokens, offsets_of
from hplus.views import lexical

VOCABULARY = 40


def texts_of(rows: list[list[int]]) -> Tokens:
    ids = np.array([i for row in rows for i in row], np.int32)
    spans = np.zeros((len(ids), 2), np.int32)
    return Tokens(("",) * len(rows), ids, spans, offsets_of([len(row) for row in rows]))


def test_an_untrained_head_is_bm25() -> None:
    """Against bm25s, on texts whose mean length is that of an ordinary text."""
    random = np.random.default_rng(13)
    lengths = [60, 120, 180, 240, 300]
    assert np.mean(lengths) == LENGTH
    rows = [(random.geometric(0.15, n) % VOCABULARY).tolist() for n in lengths]
    found = [len({i} & set(row)) for i in range(VOCABULARY) for row in rows]
    df = np.reshape(found, (VOCABULARY, len(rows))).sum(axis=1)
    idf = np.log1p((len(rows) - df + 0.5) / (df + 0.5)).astype(np.float32)
    head = LexicalHead(np.zeros(2, np.float32), 1.0, idf)
    tokens = texts_of(rows)
    states = random.normal(size=(len(tokens.ids), 2)).astype(np.float32)
    documents = lexical.represent(tokens, head.weights(tokens, states, "document"), None)

    peer = bm25s.BM25(method="lucene", k1=HALF, b=SHARE)
    names = {str(i): i for i in range(VOCABULARY)}
    peer.index(bm25s.tokenization.Tokenized(rows, names), show_progress=False)
    for _ in range(20):
        asked = sorted(set(random.integers(0, VOCABULARY, 4).tolist()))
        own = texts_of([asked])
        query = lexical.represent(own, head.weights(own, states, "query"), None)
        expected = peer.get_scores([str(i) for i in asked])
        np.testing.assert_allclose(lexical.score(query, documents), expected, rtol=1e-5)


@given(st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=4), st.integers(0))
def test_occurrences_add_up_and_saturate(rows: list[list[int]], seed: int) -> None:
    """Every weight worked out text by text and id by id."""
    random = np.random.default_rng(seed)
    tokens = texts_of(rows)
    states = random.normal(size=(len(tokens.ids), 3)).astype(np.float32)
    weight, table = random.normal(size=3).astype(np.float32), random.gamma(1.0, size=6)
    head = LexicalHead(weight, 0.25, table.astype(np.float32))
    found = head.of_document(tokens, states)
    assert found.dtype == np.float32
    for first, last in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
        own = range(first, last)
        half = 1.2 * (0.25 + 0.75 * len(own) / 180)
        for place in own:
            same = [i for i in own if tokens.ids[i] == tokens.ids[place]]
            counted = sum(max(0.0, float(states[i] @ weight) + 0.25) for i in same)
            expected = table[tokens.ids[place]] ** 0.5 * counted / (counted + half)
            assert found[place] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_table_has_no_negative_weights() -> None:
    with pytest.raises(InputError, match="negative"):
        LexicalHead(np.zeros(2, np.float32), 1.0, np.float32([0.5, -0.1]))
