"""Words: every rule by a hand-made case, and that they cover a text for any text."""

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus.errors import InputError, MissingExtraError
from hplus.units.words import STOP_WORDS, is_content, whitespace_words, words

ODD = "ab1 .,'’-_\r\n\t\u00a0é\u0301\u0345ａﾞがか中国人𠀀한\0\ud800"
ODD += "👍🏽👨\u200d👩❤\ufe0f🇩🇪\u00ad\u200b\ufeff"
texts = st.text(st.sampled_from(ODD), max_size=30) | st.text(max_size=30)


def pieces(text: str, **options: str) -> list[str]:
    return [text[start:end] for start, end in words(text, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \r\n\t", []),
        ("Don't take 0.5 mg", ["Don't", "take", "0.5", "mg"]),
        ("the patient’s 1,000.5 kg", ["the", "patient’s", "1,000.5", "kg"]),
        ("the dogs' 'end'.", ["the", "dogs", "'", "'", "end", "'", "."]),
        ("5'-UTR", ["5", "'", "-", "UTR"]),
        ("1, 2. 3.", ["1", ",", "2", ".", "3", "."]),
        ("anti-TNF", ["anti", "-", "TNF"]),
        ("HbA1c", ["HbA1c"]),
        ("foo_bar(x)", ["foo", "_", "bar", "(", "x", ")"]),
        ("ne\u0301e\u0301 e\u0301'a", ["ne\u0301e\u0301", "e\u0301'a"]),
        ("dia\u00adbetes\u00a0care", ["dia\u00adbetes", "care"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("한국어 의학", ["한국어", "의학"]),
        ("カタカナ、ひらがな", ["カタカナ", "、", "ひらがな"]),
        ("ok👍🏽👍!", ["ok", "👍🏽", "👍", "!"]),
        ("👨\u200d👩\u200d👧❤\ufe0f", ["👨\u200d👩\u200d👧", "❤\ufe0f"]),
        ("🇩🇪🇫🇷", ["🇩🇪", "🇫🇷"]),
    ],
)
def test_words_of_scripts_with_edges(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected
    assert pieces(text, han="characters") == expected


@pytest.mark.parametrize(
    ("text", "by_dictionary", "by_character"),
    [
        ("北京大学", ["北京大学"], ["北", "京", "大", "学"]),
        ("B超检查。", ["B超", "检查", "。"], ["B", "超", "检", "查", "。"]),
        ("服用0.5毫克", ["服用", "0.5", "毫克"], ["服", "用", "0.5", "毫", "克"]),
        ("naïve中文한국", ["naïve", "中文", "한국"], ["naïve", "中", "文", "한국"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"], ["葛\U000e0100", "城"]),
    ],
)
def test_words_of_han_text(text: str, by_dictionary: list[str], by_character: list[str]) -> None:
    assert pieces(text) == by_dictionary
    assert pieces(text, han="characters") == by_character


@given(texts, st.sampled_from(["jieba", "characters"]))
@example("a\u0301'b", "jieba")
def test_words_cover_every_character_that_is_not_space_once(text: str, han: str) -> None:
    covered = [
        position
        for start, end in words(text, han=han)  # type: ignore[arg-type]
        for position in range(start, end)
    ]
    assert covered == [i for i, character in enumerate(text) if not character.isspace()]


@given(texts)
def test_whitespace_words_are_what_split_gives(text: str) -> None:
    assert [text[start:end] for start, end in whitespace_words(text)] == text.split()


def test_without_rjieba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    assert pieces("no Han here") == ["no", "Han", "here"]
    assert pieces("癌症", han="characters") == ["癌", "症"]
    with pytest.raises(MissingExtraError, match=r"pip install 'hplus\[zh\]'"):
        words("癌症")


def test_another_cut_is_refused() -> None:
    with pytest.raises(InputError, match="not 'jeiba'"):
        pieces("癌症", han="jeiba")


def test_stop_words_are_folded_and_leave_negation_alone() -> None:
    assert 150 <= len(STOP_WORDS) <= 200
    assert all(word == word.casefold() for word in STOP_WORDS)
    assert STOP_WORDS.isdisjoint({"no", "not", "without", "nor", "never", "none", "don't"})


@pytest.mark.parametrize("word", ["aspirin", "0.5", "not", "No", "WITHOUT", "don't", "癌症", "β"])
def test_content(word: str) -> None:
    assert is_content(word)


@pytest.mark.parametrize("word", ["", "-", "…", "👍", "the", "The", "OF", "it's", "It’s", "\u0301"])
def test_no_content(word: str) -> None:
    assert not is_content(word)


@settings(max_examples=300)
@given(st.text(st.sampled_from("aZ09'., -_/+()\t\n\x00\x1c"), max_size=25))
def test_the_way_of_ascii_texts_cuts_like_the_general_one(text: str) -> None:
    # One letter outside ASCII, far from the rest, sends the same text the general way.
    general = [span for span in words(text + " é") if span.end <= len(text)]
    assert words(text) == general
