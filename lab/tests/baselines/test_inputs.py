"""The token ids that an encoder reads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from baseline_rows import (
    DENSE,
    MULTI,
    TEXTS,
    sequences,
)
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError, InputError
from hplus_lab.baselines import (
    LateInteraction,
    inputs,
)
from tiny import tiny_tokenizer


def test_prompt_marker_and_cut(tokenizer: Tokenizer) -> None:
    inner = tokenizer.inner
    row = replace(MULTI, query_prompt="the of ", document_prompt="in ", max_tokens=9)
    for side, prompt, marker in (("query", "the of ", "diabetes"), ("document", "in ", "disease")):
        found = inputs.of_texts(row, tokenizer, TEXTS, side)  # type: ignore[arg-type]
        for text, sequence in zip(TEXTS, sequences(found), strict=True):
            body = inner.encode(prompt + text, add_special_tokens=False).ids
            head = [inner.token_to_id("[CLS]"), inner.token_to_id(marker)]
            assert sequence == [*head, *body[:6], inner.token_to_id("[SEP]")]
        assert found.attended.all()
        assert found.kept.all()
        assert not found.segments.any()


def test_queries_are_expanded_and_documents_are_not(tokenizer: Tokenizer) -> None:
    mask = tokenizer.inner.token_to_id("[MASK]")
    row = replace(MULTI, late=LateInteraction(query_tokens=12, expand=True))
    found = inputs.of_texts(row, tokenizer, TEXTS, "query")
    assert np.diff(found.offsets).tolist() == [12] * len(TEXTS)
    np.testing.assert_array_equal(found.attended, found.ids != mask)
    assert found.kept.all()
    assert not (inputs.of_texts(row, tokenizer, TEXTS, "document").ids == mask).any()
    shorter = replace(row, max_tokens=8)
    assert np.diff(inputs.of_texts(shorter, tokenizer, TEXTS, "query").offsets).tolist() == [8] * 7


def test_which_tokens_give_no_vector(tokenizer: Tokenizer) -> None:
    signs = [tokenizer.inner.token_to_id(sign) for sign in ",;!"]
    row = replace(MULTI, late=LateInteraction(skip_punctuation=True))
    found = inputs.of_texts(row, tokenizer, TEXTS, "document")
    np.testing.assert_array_equal(found.kept, ~np.isin(found.ids, signs))
    assert (~found.kept).sum() == 3
    assert inputs.of_texts(row, tokenizer, TEXTS, "query").kept.all()
    first = inputs.of_texts(
        replace(MULTI, late=LateInteraction(skip_first=True)), tokenizer, TEXTS, "query"
    )
    assert np.flatnonzero(~first.kept).tolist() == first.offsets[:-1].tolist()


def test_pairs(tokenizer: Tokenizer) -> None:
    inner = tokenizer.inner
    cls, sep = inner.token_to_id("[CLS]"), inner.token_to_id("[SEP]")
    row = replace(DENSE, kind="cross-encoder", max_tokens=16)
    pairs = [("dose", TEXTS[0]), ("dose", TEXTS[3]), (TEXTS[3], TEXTS[3]), ("", "")]
    found = inputs.of_pairs(row, tokenizer, pairs)
    a, b, c, d = sequences(found)
    words = [inner.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert a == [cls, *words[6], sep, *words[0], sep]
    assert b == [cls, *words[6], sep, *words[3][:12], sep]
    assert c == [cls, *words[3][:6], sep, *words[3][:7], sep]
    assert d == [cls, sep, sep]
    segments = [found.segments[x:y].sum() for x, y in pairwise(found.offsets.tolist())]
    assert segments == [len(words[0]) + 1, 13, 8, 1]


def test_impossible_inputs_are_one_sentence(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="cut at 3 tokens leaves no room for a text besides 3"):
        inputs.of_texts(replace(MULTI, max_tokens=3), tokenizer, TEXTS, "query")
    with pytest.raises(BackboneError, match=r"has no token '\[D\] '"):
        inputs.of_texts(replace(MULTI, document_marker="[D] "), tokenizer, TEXTS, "document")
    bare = tiny_tokenizer()
    bare.post_processor = None
    with pytest.raises(InputError, match=r"texts\[1\] has no tokens, and tiny adds no special"):
        inputs.of_texts(DENSE, Tokenizer(bare), TEXTS, "query")
