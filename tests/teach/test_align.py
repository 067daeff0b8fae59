"""Strings to characters to tags: by hand-made cases, and against loops over all tokens."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.backbones.tokenizer import Tokenizer
from hplus.heads.crf import LEGAL, LEGAL_START, B, I, O
from hplus.teach.align import find_segments, tags_of_units
from hplus.types import Span, Tokens, offsets_of
from hplus.units.partition import begins_of_tags
from tiny import tiny_tokenizer

# Words: runs of a and b; everything else that is not white space is a word by itself.
ALPHABET = "ab -中"
WORD = re.compile(r"[ab]+|\S")

# Segments


def found(text: str, segments: list[str]) -> list[str]:
    return [f"{start}:{text[start:end]}" for start, end in find_segments(text, segments)[0]]


@pytest.mark.parametrize(
    ("text", "segments", "expected", "lost"),
    [
        ("cell by cell", ["cell", "cell"], ["0:cell", "8:cell"], 0),
        ("cell by cell", ["cell", "by", "cell"], ["0:cell", "5:by", "8:cell"], 0),
        ("cell by cell", ["cell", "cell", "cell"], ["0:cell", "8:cell"], 1),
        # a missing one does not move the cursor, and nothing similar replaces it
        ("heart failure", ["kidney", "heart"], ["0:heart"], 1),
        ("heart failure", ["Heart", "failures"], [], 2),
        # what lies before the cursor is not found
        ("heart failure", ["failure", "heart"], ["6:failure"], 1),
        ("aaaa", ["aa", "a", "aa"], ["0:aa", "2:a"], 1),
        # white space around a segment is the teacher's; inside it, it counts
        ("type 2  diabetes", [" type 2\n", "diabetes "], ["0:type 2", "8:diabetes"], 0),
        ("type 2  diabetes", ["2 diabetes"], [], 1),
        ("糖尿病和糖尿病", ["糖尿病", "和", "糖尿病"], ["0:糖尿病", "3:和", "4:糖尿病"], 0),
        ("text", ["", "  ", "text"], ["0:text"], 2),
        ("", ["text"], [], 1),
        ("text", [], [], 0),
    ],
)
def test_segments(text: str, segments: list[str], expected: list[str], lost: int) -> None:
    assert found(text, segments) == expected
    assert find_segments(text, segments)[1] == lost


@given(st.text("ab ", max_size=20), st.lists(st.text("ab ", max_size=3), max_size=8))
def test_segments_by_trying_every_place(text: str, segments: list[str]) -> None:
    spans, lost = find_segments(text, segments)
    cursor, expected = 0, []
    for segment in (segment.strip() for segment in segments):
        places = [at for at in range(cursor, len(text)) if text[at:].startswith(segment)]
        if segment and places:
            expected.append(Span(places[0], places[0] + len(segment)))
            cursor = expected[-1].end
    assert spans == expected
    assert len(spans) + lost == len(segments)


@given(st.lists(st.sampled_from(["cell", "a cell", "糖", "p53"]), max_size=8), st.data())
def test_a_teacher_who_copies_is_found_whole(pieces: list[str], data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.sampled_from([" ", ", "]), min_size=8, max_size=8))
    text = "".join(piece + gap for piece, gap in zip(pieces, gaps, strict=False))
    spans, lost = find_segments(text, pieces)
    assert ([text[a:b] for a, b in spans], lost) == (pieces, 0)


# Tags


def batch(*texts: tuple[str, list[tuple[int, int]]]) -> Tokens:
    spans = [span for _, some in texts for span in some]
    return Tokens(
        texts=tuple(text for text, _ in texts),
        ids=np.zeros(len(spans), np.int32),
        spans=np.array(spans, np.int32).reshape(-1, 2),
        offsets=offsets_of([len(some) for _, some in texts]),
    )


def letters(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Every character that is not white space is a token."""
    return text, [(i, i + 1) for i, character in enumerate(text) if not character.isspace()]


def tag(tokens: Tokens, *units: list[tuple[int, int]]) -> str:
    tags = tags_of_units(tokens, [[Span(*unit) for unit in own] for own in units])
    assert tags.dtype == np.uint8
    assert tags.shape == tokens.ids.shape
    return "".join("OBI"[tag] for tag in tags)


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([], "BIOBI"),
        ([(0, 2)], "BIOBI"),
        ([(0, 4)], "BIIBI"),
        ([(0, 7)], "BIIII"),
        ([(3, 4)], "BIBBI"),
        ([(3, 7)], "BIBII"),
        ([(0, 2), (3, 4), (5, 7)], "BIBBI"),
    ],
)
def test_the_first_token_of_a_unit_is_b_and_the_rest_i(
    units: list[tuple[int, int]], expected: str
) -> None:
    assert tag(batch(letters("aa b ab")), units) == expected


def test_a_straddling_token_belongs_to_the_first_unit_it_touches() -> None:
    tokens = batch(("un abc de", [(0, 4), (4, 7), (7, 9)]))
    assert tag(tokens, [(0, 2), (3, 6)]) == "BBO"
    assert tag(tokens, [(3, 6)]) == "BIO"
    assert tag(tokens, [(0, 2), (3, 4), (7, 9)]) == "BOB", "nothing is left of the second unit"
    assert tag(batch(("aa bb", [(0, 5)])), [(0, 2), (3, 5)]) == "B"


def test_tokens_that_share_a_character_stay_together() -> None:
    tokens = batch(("a 中 b", [(0, 1), (2, 3), (2, 3), (2, 3), (4, 5)]))
    assert tag(tokens, [(2, 3)]) == "OBIIO"
    assert tag(tokens, []) == "OBIIO"
    assert tag(tokens, [(0, 3), (4, 5)]) == "BIIIB"


def test_texts_of_a_batch_do_not_touch() -> None:
    tokens = batch(letters("ab"), ("", []), letters("b a"), letters("a"))
    assert tag(tokens, [(0, 2)], [], [(0, 3)], []) == "BI" + "" + "BI" + "O"
    assert tag(tokens, [], [], [], [(0, 1)]) == "BI" + "" + "OO" + "B"
    assert tag(batch()) == ""


def test_pieces_of_a_word_are_never_o() -> None:
    tokenizer = Tokenizer(tiny_tokenizer())
    # the | x ##y ##z | heart failure | of | q ##9
    tokens = tokenizer.tokens(["the xyz heart failure of q9"])
    assert tag(tokens, [(8, 21)]) == "OBIIBIOBI"
    assert tag(tokens, [(4, 21)]) == "OBIIIIOBI"
    assert tag(tokens, [(4, 7), (8, 21), (25, 27)]) == "OBIIBIOBI"


def test_chinese() -> None:
    tokens = Tokenizer(tiny_tokenizer()).tokens(["糖尿病患者的治疗", "2型糖尿病"])
    assert tag(tokens, [(0, 5), (6, 8)], [(0, 5)]) == "BIIIIOBI" + "BIIII"
    assert tag(tokens, [], []) == "O" * 8 + "O" * 5, "a character is a word here"


# Properties


@st.composite
def tokenised(draw: st.DrawFn) -> Tokens:
    """Tokens that may straddle words, leave gaps, or share a character."""
    text = draw(st.text(ALPHABET, max_size=16))
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    spans = []
    for span in pairwise(cuts):
        spans += [span] * draw(st.sampled_from([0, 1, 1, 1, 2 if span[1] - span[0] == 1 else 1]))
    return batch((text, spans))


@st.composite
def on_words(draw: st.DrawFn) -> tuple[Tokens, list[Span]]:
    """Tokens, and units that begin and end with words, in reading order."""
    tokens = draw(tokenised())
    words = [match.span() for match in WORD.finditer(tokens.texts[0])]
    cuts = sorted(draw(st.sets(st.integers(0, len(words)), max_size=8)))
    units = [Span(words[a][0], words[b - 1][1]) for a, b in pairwise(cuts)]
    return tokens, [unit for unit in units if draw(st.booleans())]


@st.composite
def anywhere(draw: st.DrawFn) -> tuple[Tokens, list[Span]]:
    """Tokens, and units that begin and end with any character, in reading order."""
    tokens = draw(tokenised())
    cuts = sorted(draw(st.sets(st.integers(0, len(tokens.texts[0])), max_size=8)))
    return tokens, [Span(*pair) for pair in pairwise(cuts) if draw(st.booleans())]


def owners(tokens: Tokens, spans: list[Span], free: list[int]) -> dict[int, list[int]]:
    """For each span the free tokens that touch it and no span before it."""
    owned: dict[int, list[int]] = {}
    for row in free:
        start, end = tokens.spans[row].tolist()
        touched = [i for i, (a, b) in enumerate(spans) if max(a, start) < min(b, end)]
        if touched:
            owned.setdefault(touched[0], []).append(row)
    return owned


@settings(max_examples=300, deadline=None)
@given(on_words())
def test_tags_by_asking_every_token(case: tuple[Tokens, list[Span]]) -> None:
    tokens, units = case
    expected = np.full(len(tokens.ids), O)
    everything = list(range(len(tokens.ids)))
    in_units = owners(tokens, units, everything)
    for rows in in_units.values():
        expected[rows] = I
        expected[rows[0]] = B
    taken = [row for rows in in_units.values() for row in rows]
    words = [Span(*match.span()) for match in WORD.finditer(tokens.texts[0])]
    for rows in owners(tokens, words, [r for r in everything if r not in taken]).values():
        if len(rows) > 1:
            expected[rows] = I
            expected[rows[0]] = B
    assert tags_of_units(tokens, [units]).tolist() == expected.tolist()


@settings(max_examples=300, deadline=None)
@given(on_words() | anywhere())
@example((batch(letters("abab")), [Span(1, 2)]))
def test_a_unit_of_the_partition_is_a_unit_of_the_labels(case: tuple[Tokens, list[Span]]) -> None:
    tokens, units = case
    begins = begins_of_tags(tags_of_units(tokens, [units]), tokens.offsets)
    for rows in owners(tokens, units, list(range(len(tokens.ids)))).values():
        after = rows[-1] + 1
        assert begins[rows[0]]
        assert not begins[rows[1:]].any()
        assert after == len(begins) or begins[after]


SPANS = st.lists(
    st.tuples(st.integers(0, 16), st.integers(0, 16)).map(lambda ends: Span(*sorted(ends))),
    max_size=5,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(tokenised(), SPANS), max_size=3))
@example([(batch(letters("abab")), [Span(1, 2)])])
@example([(batch(letters("abab")), [Span(2, 4), Span(0, 3), Span(1, 2)])])
def test_tags_are_legal_whatever_the_units(texts: list[tuple[Tokens, list[Span]]]) -> None:
    """Inside words, beyond the text, across each other, in no order."""
    some = [(tokens.texts[0], [tuple(span) for span in tokens.spans]) for tokens, _ in texts]
    tokens = batch(*some)
    tags = tags_of_units(tokens, [units for _, units in texts])
    for first, last in pairwise(tokens.offsets.tolist()):
        own = tags[first:last]
        assert LEGAL_START[own[:1]].all()
        assert all(LEGAL[a, b] for a, b in pairwise(own))
