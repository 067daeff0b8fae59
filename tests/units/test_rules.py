"""Grouping rules: complete for any text, equal to plain loops, random ones fixed by seed and text.

How a run of more than four content words is split is not pinned here, only that it is split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import plain_tokens
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import InputError
from hplus.types import Bool, Span, Tokens
from hplus.units.partition import partition, spans_of_units
from hplus.units.rules import (
    RUN,
    equal_chunks,
    ngrams,
    random_spans,
    rule,
    run_spans,
    shuffled,
    single_tokens,
    whole_words,
    whole_words_by_whitespace,
)
from hplus.units.words import is_content, whitespace_words, words
from tiny import tiny_tokenizer

NAMES = ["tokens", "words", "whitespace", "runs", "ngrams-3", "chunks-4", "random-7"]
TOKENIZER = Tokenizer(tiny_tokenizer())
some = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**32 - 1)
lengths_of_texts = st.lists(st.integers(0, 30), max_size=5)
PIECES = ["diabetes", "of", "the", "mg/kg", "COX-2", "not", "¼", "½ ", "é", "e\u0301", "ﬁ"]
PIECES += [
    ", ",
    ".",
    " ",
    " ",
    " ",
    "\n",
    "糖尿病",
    "患者",
    "治",
    "👍🏽",
    "type 2",
    "zzz",
    "\ud800",
]
texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=15).map("".join), max_size=4)


def numbered_tokens(lengths: list[int], *, seed: int = 0) -> Tokens:
    """Texts of `lengths` words, no two alike."""
    names = [f"{seed}x{i} " + "word " * (n - 1) if n else "" for i, n in enumerate(lengths)]
    return plain_tokens(*names)


def lengths_of_units(begins: Bool, tokens: Tokens) -> list[list[int]]:
    """Unit lengths of each text in tokens."""
    return [
        [b - a for a, b in pairwise([*np.flatnonzero(begins[first:last]).tolist(), last - first])]
        if last > first
        else []
        for first, last in pairwise(tokens.offsets.tolist())
    ]


def units_of(begins: Bool, tokens: Tokens) -> list[list[str]]:
    """The text of every unit of each text."""
    units = partition(begins, tokens.offsets)
    spans = spans_of_units(tokens, units).tolist()
    return [
        [text[a:b] for a, b in spans[first:last]]
        for text, (first, last) in zip(tokens.texts, pairwise(units.offsets.tolist()), strict=True)
    ]


def shuffled_pattern(tokens: Tokens, seed: int) -> Bool:
    """Lengths 1, 2, 4, 1, 2, 4, … in another order."""
    position = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], np.diff(tokens.offsets))
    return shuffled(np.isin(position % 7, [0, 1, 3]), tokens, seed)


RANDOM_RULES = [random_spans, shuffled_pattern]


@pytest.mark.parametrize("name", [*NAMES, "shuffled"])
@settings(deadline=None, max_examples=40)
@given(batch=texts)
def test_every_rule_gives_a_complete_partition(name: str, batch: list[str]) -> None:
    tokens = TOKENIZER.tokens(batch)
    begins = shuffled_pattern(tokens, 5) if name == "shuffled" else rule(name)(tokens)
    assert begins.dtype == np.bool_
    assert begins.shape == tokens.ids.shape
    for first, last in pairwise(tokens.offsets.tolist()):
        assert last == first or begins[first]
        shares = tokens.spans[first + 1 : last, 0] < tokens.spans[first : max(last - 1, first), 1]
        assert not (begins[first + 1 : last] & shares).any()
    assert [sum(text) for text in lengths_of_units(begins, tokens)] == np.diff(
        tokens.offsets
    ).tolist()


@some
@given(lengths_of_texts, st.integers(1, 7))
def test_tokens_and_ngrams_equal_loops(lengths: list[int], n: int) -> None:
    tokens = numbered_tokens(lengths)
    assert lengths_of_units(single_tokens(tokens), tokens) == [[1] * m for m in lengths]
    expected = [[min(n, m - start) for start in range(0, m, n)] for m in lengths]
    assert lengths_of_units(ngrams(tokens, n), tokens) == expected
    np.testing.assert_array_equal(rule(f"ngrams-{n}")(tokens), ngrams(tokens, n))


@some
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 35)), max_size=5))
def test_chunks_are_as_many_as_asked_and_as_equal_as_can_be(pairs: list[tuple[int, int]]) -> None:
    tokens = numbered_tokens([length for length, _ in pairs])
    counts = np.array([count for _, count in pairs], np.int64)
    found = lengths_of_units(equal_chunks(tokens, counts), tokens)
    for (length, count), sizes in zip(pairs, found, strict=True):
        assert len(sizes) == min(count, length)
        assert sum(sizes) == length
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
    for count in {count for _, count in pairs}:
        same = equal_chunks(tokens, np.full(len(pairs), count))
        np.testing.assert_array_equal(equal_chunks(tokens, count), same)
        np.testing.assert_array_equal(rule(f"chunks-{count}")(tokens), same)


@some
@given(batch=texts, count=st.integers(1, 40))
def test_chunks_are_exact_wherever_a_text_can_be_cut(batch: list[str], count: int) -> None:
    """Tokens of one character stay together, and the chunks are made up elsewhere."""
    tokens = TOKENIZER.tokens(batch)
    found = lengths_of_units(equal_chunks(tokens, count), tokens)
    can = lengths_of_units(single_tokens(tokens), tokens)
    assert [len(sizes) for sizes in found] == [min(count, len(sizes)) for sizes in can]


def test_chunks_of_characters_of_several_tokens() -> None:
    spans = np.repeat(np.arange(6), 2)[:, None] + np.array([0, 1])  # twelve tokens, six characters
    tokens = Tokens(("abcdef",), np.arange(12, dtype=np.int32), spans.astype(np.int32),
                    np.array([0, 12]))  # fmt: skip
    assert lengths_of_units(equal_chunks(tokens, 6), tokens) == [[2] * 6]
    assert lengths_of_units(equal_chunks(tokens, 4), tokens) == [[2, 4, 2, 4]]


def test_a_rule_never_cuts_a_character() -> None:
    spans = np.array([[0, 1]] * 4 + [[1, 2]] * 2, np.int32)
    tokens = Tokens(("👍½",), np.arange(6, dtype=np.int32), spans, np.array([0, 6]))
    for name in ["tokens", "ngrams-1", "chunks-6"]:
        assert rule(name)(tokens).astype(int).tolist() == [1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("draw", RANDOM_RULES)
@some
@given(lengths=lengths_of_texts, seed=seeds)
def test_a_text_is_divided_alike_alone_and_in_any_batch(
    draw: Callable[[Tokens, int], Bool], lengths: list[int], seed: int
) -> None:
    tokens = numbered_tokens(lengths, seed=seed)
    together = lengths_of_units(draw(tokens, seed), tokens)
    backwards = plain_tokens(*reversed(tokens.texts))
    assert lengths_of_units(draw(backwards, seed), backwards)[::-1] == together
    for text, expected in zip(tokens.texts, together, strict=True):
        alone = plain_tokens(text)
        assert lengths_of_units(draw(alone, seed), alone) == [expected]


@pytest.mark.parametrize("draw", RANDOM_RULES)
def test_seeds_and_texts_differ(draw: Callable[[Tokens, int], Bool]) -> None:
    tokens = numbered_tokens([100, 100])
    one, two = lengths_of_units(draw(tokens, 1), tokens)
    other = lengths_of_units(draw(tokens, 2), tokens)[0]
    assert one != two
    assert one != other
    np.testing.assert_array_equal(draw(tokens, 1), draw(tokens, 1))


def test_random_lengths_are_even_from_one_to_four() -> None:
    tokens = numbered_tokens([4000])
    drawn = Counter(lengths_of_units(random_spans(tokens, 0), tokens)[0][:-1])
    assert set(drawn) == {1, 2, 3, 4}
    shares = np.array([drawn[length] for length in (1, 2, 3, 4)]) / drawn.total()
    np.testing.assert_allclose(shares, 0.25, atol=0.05)
    np.testing.assert_array_equal(rule("random-0")(tokens), random_spans(tokens, 0))


@some
@given(lengths_of_texts, seeds)
def test_shuffled_keeps_every_length(lengths: list[int], seed: int) -> None:
    tokens = numbered_tokens(lengths)
    begins = random_spans(tokens, seed)
    before = begins.copy()
    again = shuffled(begins, tokens, seed)
    np.testing.assert_array_equal(begins, before)
    own = lengths_of_units(begins, tokens)
    assert [Counter(text) for text in lengths_of_units(again, tokens)] == [
        Counter(text) for text in own
    ]


@pytest.mark.parametrize(("name", "cut"), [("words", words), ("whitespace", whitespace_words)])
@some
@given(batch=texts)
def test_word_rules_begin_where_the_word_changes(
    name: str, cut: Callable[[str], list[Span]], batch: list[str]
) -> None:
    tokens = TOKENIZER.tokens(batch)
    expected: list[bool] = []
    for text, (first, last) in zip(tokens.texts, pairwise(tokens.offsets.tolist()), strict=True):
        spans = cut(text)
        homes = [
            next(i for i, span in enumerate(spans) if span.start <= start < span.end)
            for start, _ in tokens.spans[first:last].tolist()
        ]
        for i, home in enumerate(homes):
            shared = i > 0 and tokens.spans[first + i, 0] < tokens.spans[first + i - 1, 1]
            expected.append(i == 0 or (home != homes[i - 1] and not shared))
    assert rule(name)(tokens).tolist() == expected


def test_words_of_english_and_chinese() -> None:
    tokens = TOKENIZER.tokens(["insulin (5 mg), daily", "糖尿病患者的治疗"])
    assert units_of(whole_words(tokens), tokens) == [
        ["insulin", "(", "5", "mg", ")", ",", "daily"],
        ["糖尿病", "患者", "的", "治疗"],
    ]
    assert units_of(whole_words_by_whitespace(tokens), tokens) == [
        ["insulin", "(5", "mg),", "daily"],
        ["糖尿病患者的治疗"],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("5 mg/kg of a COX-2 inhibitor", ["5 mg/kg", "of", "a", "COX-2 inhibitor"]),
        ("COX-2 inhibitor", ["COX-2 inhibitor"]),
        ("chronic kidney disease therapy", ["chronic kidney disease therapy"]),
        ("up to four patients", ["up", "to", "four patients"]),
        ("the heart, the kidney.", ["the", "heart", ",", "the", "kidney", "."]),
        ("The OF And", ["The", "OF", "And"]),
        ("no evidence of benefit", ["no evidence", "of", "benefit"]),
        (
            "patients without diabetes did not improve",
            ["patients without diabetes", "did", "not improve"],
        ),
        ("anti - TNF", ["anti", "-", "TNF"]),
        ("anti -TNF", ["anti", "-", "TNF"]),
        ("anti- TNF", ["anti", "-", "TNF"]),
        ("pre- and postoperative", ["pre", "-", "and", "postoperative"]),
        ("-2 (a)", ["-", "2", "(", "a", ")"]),
        ("heart (failure)", ["heart", "(", "failure", ")"]),
        ("糖尿病, 高血压", ["糖尿病", ",", "高血压"]),
    ],
)
def test_content_word_runs_by_hand(text: str, expected: list[str]) -> None:
    """Negations are content: they stay with their neighbours."""
    assert [text[a:b] for a, b in run_spans(text)] == expected
    tokens = TOKENIZER.tokens([text])
    assert units_of(rule("runs")(tokens), tokens) == [expected]


run_texts = st.lists(
    st.sampled_from(
        ["gene", "COX-2", "the", "of", "not", "5", "mg/kg", "治疗", ",", "a-b-c-d-e-f"]
    ),
    max_size=20,
).map(" ".join)


@settings(deadline=None, max_examples=150)
@given(run_texts)
def test_no_run_has_more_than_four_content_words_and_stop_words_stand_alone(text: str) -> None:
    runs = run_spans(text)
    assert "".join(text[a:b] for a, b in runs).replace(" ", "") == text.replace(" ", "")
    for start, end in runs:
        inside = [text[start + a : start + b] for a, b in words(text[start:end], han="characters")]
        content = [word for word in inside if is_content(word)]
        assert len(content) <= RUN == 4
        assert content or len(inside) == 1
        assert all(not word.isalpha() or is_content(word) for word in inside) or len(inside) == 1


@pytest.mark.parametrize(
    "name", ["", "word", "ngrams", "ngrams-0", "chunks-0", "chunks--1", "random-x", "tokens-2"]
)
def test_an_unknown_rule_is_an_error_that_names_the_known(name: str) -> None:
    with pytest.raises(InputError) as caught:
        rule(name)
    message = str(caught.value)
    assert message.startswith(f"unknown units {name!r}; known: ")
    for known in ["tokens", "words", "whitespace", "runs", "ngrams-N", "chunks-N", "random-SEED"]:
        assert known in message
