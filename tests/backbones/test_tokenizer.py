"""Tokens and the characters they cover, for three kinds of tokenizers."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from hplus.backbones.bert import Bert
from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import BackboneError
from tiny import tiny_tokenizer

# Any code point at all: controls, combining marks, lone surrogates, unassigned ones; and the
# ones that normalisers and byte-level tokenizers trip over, more often than by chance.
ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from(" \t\r\n\x00\u00a0\u3000\u200d\u0301\ufffd\ud83d😀ﬁ½Ａｉ糖한étypİ[]"),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def byte_tokenizer(byte_level: tokenizers.Tokenizer) -> Tokenizer:
    return Tokenizer(byte_level)


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    """The characters under each token."""
    return [text[start:end] for start, end in tokenizer.tokens([text]).spans.tolist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type 2 diabetes", ["type", "2", "diabetes"]),
        ("so 😀 good", ["so", "😀", "good"]),
        ("👩‍🚀 ok", ["👩‍🚀", "ok"]),
        ("cafe\u0301 re\u0301sume\u0301 bar", ["cafe\u0301", "re\u0301sume\u0301", "bar"]),
        ("CAFÉ Bar", ["CAFÉ", "Bar"]),
        ("e\u0301", ["e\u0301"]),
        ("re\u0301 \u0301 2\u20e3 ❤\ufe0f", ["re\u0301", "2\u20e3", "❤\ufe0f"]),
        ("ｔｙｐｅ　２，ok", ["ｔｙｐｅ", "２", "，", "ok"]),
        ("one\r\ntwo\rthree\n", ["one", "two", "three"]),
        ("中国 人", ["中", "国", "人"]),
        ("2型糖尿病type", ["2", "型", "糖", "尿", "病", "type"]),
        ("Ελλάδα", ["Ε", "λ", "λ", "ά", "δ", "α"]),
        ("a\x00b c", ["a\x00b", "c"]),
        ("heart\ud800 failure", ["heart", "failure"]),
        ("", []),
        (" \t\r\n ", []),
    ],
)
def test_spans_of_minilm(minilm: Bert, text: str, expected: list[str]) -> None:
    assert pieces(minilm.tokenizer, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" type  typ", ["typ", "e", " ", "typ"]),
        ("a 😀b", ["a", "😀", "😀", "😀", "😀", "b"]),
        ("it\u3000糖", ["it", "\u3000", "\u3000", "\u3000", "糖", "糖", "糖"]),
        ("e\u0301", ["e", "\u0301", "\u0301"]),
        ("Ａ", ["Ａ", "Ａ", "Ａ"]),
        ("it\r\nit", ["it", "\r", "\n", "it"]),
        ("a\x00b", ["a", "\x00", "b"]),
        ("x\ud800y", ["x", "\ud800", "\ud800", "\ud800", "y"]),
        ("", []),
    ],
)
def test_spans_of_a_byte_level_tokenizer(
    byte_tokenizer: Tokenizer, text: str, expected: list[str]
) -> None:
    assert pieces(byte_tokenizer, text) == expected


def test_leading_spaces_are_in_the_token_and_not_in_its_span(
    byte_tokenizer: Tokenizer, byte_level: tokenizers.Tokenizer
) -> None:
    text = "it typ"
    assert byte_level.encode(text).offsets == [(0, 2), (2, 6)]
    tokens = byte_tokenizer.tokens([text])
    assert tokens.spans.tolist() == [[0, 2], [3, 6]]
    assert byte_tokenizer.token(int(tokens.ids[1])) == "Ġtyp"


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "x \x00\x00 y", "\x00"])
def test_surrogates_and_nul_neither_raise_nor_shift_what_follows(
    minilm: Bert, byte_tokenizer: Tokenizer, text: str
) -> None:
    for tokenizer in (minilm.tokenizer, byte_tokenizer):
        tokens = tokenizer.tokens([f"{text} heart"])
        assert tokens.texts == (f"{text} heart",)
        assert tokens.spans[-1].tolist()[1] == len(text) + 6
        assert pieces(tokenizer, f"{text} heart")[-1] in ("heart", "t")


def test_texts_of_a_batch_are_cut_as_if_alone(minilm: Bert) -> None:
    texts = ["heart failure", "", "糖尿病 😀", "a"]
    tokens = minilm.tokenizer.tokens(texts)
    assert tokens.offsets.tolist() == [0, 2, 2, 6, 7]
    assert (tokens.ids.dtype, tokens.spans.dtype) == (np.int32, np.int32)
    for row, text in enumerate(texts):
        rows = slice(tokens.offsets[row], tokens.offsets[row + 1])
        one = minilm.tokenizer.tokens([text])
        assert np.array_equal(tokens.ids[rows], one.ids)
        assert np.array_equal(tokens.spans[rows], one.spans)


def test_no_texts_are_no_tokens(minilm: Bert) -> None:
    tokens = minilm.tokenizer.tokens([])
    assert (len(tokens), tokens.ids.shape, tokens.spans.shape) == (0, (0,), (0, 2))
    assert tokens.offsets.tolist() == [0]


def test_long_texts_are_neither_cut_nor_padded(minilm: Bert) -> None:
    tokens = minilm.tokenizer.tokens(["heart " * 2_000, "heart"])
    assert tokens.offsets.tolist() == [0, 2_000, 2_001]


def test_special_tokens_stand_apart(minilm: Bert, byte_tokenizer: Tokenizer) -> None:
    tokenizer = minilm.tokenizer
    assert [tokenizer.token(i) for i in tokenizer.prefix] == ["[CLS]"]
    assert [tokenizer.token(i) for i in tokenizer.suffix] == ["[SEP]"]
    assert (byte_tokenizer.prefix, byte_tokenizer.suffix) == ([], [])


@pytest.mark.parametrize(
    ("template", "prefix", "suffix"),
    [("[CLS] $A", 1, 0), ("$A [SEP]", 0, 1), ("[CLS] [CLS] $A [SEP] [SEP] [SEP]", 2, 3)],
)
def test_special_tokens_of_other_templates(template: str, prefix: int, suffix: int) -> None:
    inner = tiny_tokenizer()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = Tokenizer(inner)
    assert (tokenizer.prefix, tokenizer.suffix) == ([2] * prefix, [3] * suffix)


def test_special_tokens_spelled_out_in_a_text_are_its_characters(minilm: Bert) -> None:
    tokenizer = minilm.tokenizer
    text = "a [SEP] b[MASK] [CLS][PAD] [UNK]"
    special = {tokenizer.inner.token_to_id(f"[{n}]") for n in ("SEP", "MASK", "CLS", "PAD", "UNK")}
    assert len(special) == 5
    assert not special & set(tokenizer.tokens([text]).ids.tolist())
    assert pieces(tokenizer, "a [SEP]") == ["a", "[", "SEP", "]"]


def test_the_unknown_id_of_each_kind_of_model(minilm: Bert, byte_tokenizer: Tokenizer) -> None:
    wordpiece = minilm.tokenizer
    assert wordpiece.unknown == wordpiece.tokens(["\U00013000"]).ids[0] == 100
    assert wordpiece.token(100) == "[UNK]"
    assert byte_tokenizer.unknown is None
    bpe = models.BPE(vocab={"<u>": 0, "a": 1}, merges=[], unk_token="<u>")
    assert Tokenizer(tokenizers.Tokenizer(bpe)).unknown == 0


def test_the_unknown_id_of_a_unigram_model() -> None:
    inner = tokenizers.Tokenizer(models.Unigram([("<s>", 0.0), ("<u>", 0.0), ("a", -1.0)], 1))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = Tokenizer(inner)
    assert tokenizer.tokens(["a z"]).ids.tolist() == [2, 1]
    assert tokenizer.unknown == 1


def test_the_size_of_the_vocabulary(minilm: Bert, byte_tokenizer: Tokenizer) -> None:
    assert minilm.tokenizer.vocabulary == 30_522
    assert byte_tokenizer.vocabulary == 256 + 6


def test_a_missing_file_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(BackboneError, match=r"tokenizer\.json is missing"):
        Tokenizer.read(path)
    path.write_text('{"model": 1}')
    with pytest.raises(BackboneError, match=r"tokenizer\.json is not a tokenizer file"):
        Tokenizer.read(path)


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=4), kind=st.sampled_from(["minilm", "tiny", "byte"]))
def test_spans_lie_in_their_texts_in_reading_order(
    minilm: Bert, byte_tokenizer: Tokenizer, tiny: Bert, texts: list[str], kind: str
) -> None:
    tokenizer = {
        "minilm": minilm.tokenizer,
        "tiny": tiny.tokenizer,
        "byte": byte_tokenizer,
    }[kind]
    tokens = tokenizer.tokens(texts)
    assert tokens.texts == tuple(texts)
    assert len(tokens.ids) == len(tokens.spans) == tokens.offsets[-1]
    assert len(tokens.offsets) == len(texts) + 1
    assert ((tokens.ids >= 0) & (tokens.ids < tokenizer.vocabulary)).all()
    for row, text in enumerate(texts):
        spans = tokens.spans[tokens.offsets[row] : tokens.offsets[row + 1]]
        assert (np.diff(spans[:, 0]) >= 0).all()
        assert (spans[:, 0] >= 0).all()
        assert (spans[:, 0] < spans[:, 1]).all()
        assert (spans[:, 1] <= len(text)).all()


@settings(max_examples=100, deadline=None)
@given(text=ANY_TEXT)
def test_a_byte_level_tokenizer_covers_every_character(
    byte_tokenizer: Tokenizer, text: str
) -> None:
    covered = np.zeros(len(text), np.bool_)
    for start, end in byte_tokenizer.tokens([text]).spans.tolist():
        covered[start:end] = True
    assert all(covered[i] or character.isspace() for i, character in enumerate(text))


@settings(max_examples=100, deadline=None)
@given(text=ANY_TEXT)
def test_a_span_never_begins_with_white_space_unless_it_is_nothing_else(
    byte_tokenizer: Tokenizer, text: str
) -> None:
    for piece in pieces(byte_tokenizer, text):
        assert not piece[0].isspace() or piece.isspace()


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=4), byte_level=st.booleans())
def test_unknown_tokens_are_counted_as_they_are_made(
    minilm: Bert, byte_tokenizer: Tokenizer, texts: list[str], byte_level: bool
) -> None:
    tokenizer = byte_tokenizer if byte_level else minilm.tokenizer
    ids = tokenizer.tokens(texts).ids.tolist()
    unknown = 0 if tokenizer.unknown is None else ids.count(tokenizer.unknown)
    assert tokenizer.count_unknown(texts) == (len(ids), unknown)


def test_a_marker_as_prompt_is_one_token() -> None:
    """ColBERT's [unused0] stands before a text as that token, not as four pieces."""
    inner = tiny_tokenizer()
    tokenizer = Tokenizer(inner)
    assert tokenizer.prompt_ids("[MASK]") == [inner.token_to_id("[MASK]")]
    assert len(tokenizer.prompt_ids("[nothing]")) > 1
    with_marker = tokenizer.tokens(["type 2"], "[MASK]")
    assert with_marker.ids.tolist() == tokenizer.tokens(["type 2"]).ids.tolist()
