"""Passages: they cover the text, stay within their limit, and are cut where one would cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus import HPlus
from hplus.types import I32
from hplus.units.passages import OVERLAP, passages
from hplus.units.sentences import sentence_ends
from tiny import tiny_tokenizer

PIECES = ["Heart failure. ", "the dose ", "is 5 mg/kg", "\n\n", "糖尿病。", "Why? ", "½"]
PIECES += ["xyz" * 9, " 👩\u200d🔬", "e\u0301"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def spans_of(text: str) -> I32:
    encoding = tiny_tokenizer().encode(text, add_special_tokens=False)
    return np.array(encoding.offsets, np.int32).reshape(-1, 2)


@settings(deadline=None)
@given(TEXTS, st.integers(1, 40))
@example("", 1)
@example("a" * 90 + " " + "b" * 90, 3)
@example("Heart failure. " * 30, 8)
def test_passages_cover_the_text_and_stay_within_their_limit(text: str, limit: int) -> None:
    spans = spans_of(text)
    found = passages(text, spans, limit)
    assert found[0].start == 0
    assert found[-1].end == len(text)
    whole = {0, *spans[1:][spans[1:, 0] >= np.maximum.accumulate(spans[:-1, 1]), 0].tolist()}
    for a, b in pairwise(found):
        assert a.start < b.start <= a.end < b.end or len(text) == 0  # no gap, always forward
    for passage in found:
        inside = (spans[:, 0] >= passage.start) & (spans[:, 0] < passage.end)
        tokens = spans[inside]
        divisible = sum(start in whole for start in tokens[1:, 0].tolist())
        assert len(tokens) <= limit or divisible == 0  # else one character has more tokens
        assert (tokens[:, 1] <= passage.end).all()  # and none is divided
    if len(spans) <= limit:
        assert found == [(0, len(text))]


@settings(deadline=None)
@given(TEXTS, st.integers(4, 40))
def test_a_cut_inside_a_sentence_has_no_better_place(text: str, limit: int) -> None:
    spans = spans_of(text)
    ends = sentence_ends(text)
    before = 0
    for passage in passages(text, spans, limit)[:-1]:
        inside = [e for e in ends if max(passage.start, before) < e <= passage.end]
        before = passage.end
        starts = sorted({int(s) for s in spans[:, 0] if s >= passage.start})[1:]
        # Tokens may share characters with a sentence's end; such a place cannot be used.
        usable = [e for e in inside if e in starts]
        assert passage.end in ends or not usable


@settings(deadline=None)
@given(TEXTS, st.integers(4, 40))
def test_passages_share_whole_sentences_of_a_quarter_at_most(text: str, limit: int) -> None:
    spans = spans_of(text)
    found = passages(text, spans, limit)
    ends = {*sentence_ends(text), 0}
    for i, (a, b) in enumerate(pairwise(found)):
        shared = int(((spans[:, 0] >= b.start) & (spans[:, 0] < a.end)).sum())
        last = i == len(found) - 2
        assert shared <= (limit // 2 if last else limit // OVERLAP)
        if shared and a.end in ends:
            assert b.start in ends


def test_paragraphs_first() -> None:
    text = "One two three four.\n\nFive six. Seven eight nine ten."
    found = passages(text, spans_of(text.lower().capitalize()), 200)
    assert found == [(0, len(text))]
    words = "The heart of a patient is the heart. "
    text = words * 2 + "\n\n" + words * 3
    spans = spans_of(text)
    per = len(spans_of(words))
    first = passages(text, spans, 3 * per)[0]
    assert text[first.start : first.end] == words * 2 + "\n\n"


def test_a_model_cuts_by_its_own_tokens(tiny: HPlus, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Chronic kidney disease is here. Heart failure of the patient! " * 40
    found = tiny.passages(text, 24)
    assert len(found) > 10
    for a, b in found:
        assert tiny.encode_document([text[a:b]]).coverage.tokens[0] <= 24
    monkeypatch.setattr("hplus.views.stretches.SIZE", 500)
    again = tiny.passages(text, 24)
    assert again[0].start == 0
    assert again[-1].end == len(text)
    assert all(a.start < b.start <= a.end for a, b in pairwise(again))
