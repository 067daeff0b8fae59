"""Texts -> token ids with the characters each token covers.

Spans are in characters of the text as it was given, whatever the tokenizer's normaliser does
to it (lower-casing, accents, full-width forms). Special tokens are kept apart: they take part
in attention, but are never units, tags or lexical tokens.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from hplus.errors import BackboneError
from hplus.files import read_bytes
from hplus.types import I32, Tokens, offsets_of

# Ids of the tokens of a text, and the characters each covers.
_Pieces = tuple[list[int], list[tuple[int, int]]]
MOST_BYTES = 128 * 2**20
"""The largest tokenizer file; those of 260,000 pieces have 35 MB."""
MOST_GROWTH = 64
MOST_WORD = 1_000
UNICODE_BYTES = 64
"""The longest that a character becomes in a Unicode form: U+FDFA has 33 bytes."""
_MARKER = re.compile(r"\[\w+\]")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_FAILS = "the encoder's tokenizer fails on a text"
WHITE_SPACE = re.compile(r"\s")


class Tokenizer:
    """A `tokenizers` tokenizer that never truncates, never pads and keeps special tokens apart."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        _check_bounded(inner)
        inner.no_padding()
        inner.no_truncation()
        # A text that spells "[SEP]" means the characters, not the special token.
        inner.encode_special_tokens = True
        self.inner = inner
        bare = inner.encode("a", add_special_tokens=False).ids
        full = inner.encode("a").ids
        start = next(i for i in range(len(full) + 1) if full[i : i + len(bare)] == bare)
        self.prefix: list[int] = full[:start]
        """Special tokens before a text ([CLS])."""
        self.suffix: list[int] = full[start + len(bare) :]
        """Special tokens after a text ([SEP])."""
        self.vocabulary: int = inner.get_vocab_size()
        self.unknown: int | None = _unknown_id(inner)
        """Id of the token all unknown pieces share: two of them need not be the same piece."""

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """From a `tokenizer.json`."""
        try:
            with _as_backbone_error(f"{path} is not a tokenizer file"):
                text = read_bytes(path, MOST_BYTES, BackboneError).decode()
                return cls(tokenizers.Tokenizer.from_str(text))
        except FileNotFoundError:
            raise BackboneError(f"{path} is missing; a backbone folder needs it") from None

    def tokens(self, texts: Sequence[str], prompt: str = "") -> Tokens:
        """Split texts into tokens, as they stand after a prompt; the prompt's own are left out.

        >>> from hplus.backbones import mini
        >>> tokenizer = Tokenizer.read(mini.folder() / "tokenizer.json")
        >>> tokenizer.tokens(["type 2 diabetes"]).spans.tolist()
        [[0, 4], [5, 6], [7, 15]]
        """
        clean = _clean(texts)
        encoded = self._after(prompt, clean) if prompt else self._alone(clean)
        lengths = [len(ids) for ids, _ in encoded]
        ids = np.fromiter((i for found, _ in encoded for i in found), np.int32, sum(lengths))
        spans = np.array([s for _, found in encoded for s in found], np.int32).reshape(-1, 2)
        offsets = offsets_of(lengths)
        for text, first, last in zip(clean, offsets[:-1], offsets[1:], strict=True):
            _trim(text, spans[first:last])
            if not text.isascii():
                _keep_marks(text, spans[first:last])
        return Tokens(tuple(texts), ids, spans, offsets)

    def count_unknown(self, texts: Sequence[str]) -> tuple[int, int]:
        """How many tokens the texts have, and how many of them are unknown; spans are not made."""
        with _as_backbone_error(_FAILS):
            found = self.inner.encode_batch_fast(_clean(texts), add_special_tokens=False)
        tokens = sum(map(len, found))
        if self.unknown is None:
            return tokens, 0
        return tokens, sum(encoding.ids.count(self.unknown) for encoding in found)

    def prompt_ids(self, prompt: str) -> list[int]:
        """The tokens of a prompt that stands before a text.

        A last space usually belongs to the text's first token, so the prompt is read with a word
        after it. A prompt that is one token in brackets, as the markers of ColBERT are
        ("[unused0]"), means that token.
        """
        if not prompt:
            return []
        marker = self.inner.token_to_id(prompt) if _MARKER.fullmatch(prompt) else None
        if marker is not None:
            return [marker]
        (ids, spans), (alone, _) = self._alone([f"{prompt}a", prompt])
        ends = [end for _, end in spans if end <= len(prompt)]
        if not ends or ends[-1] < len(prompt.rstrip()):  # its last word continues into the text
            return alone
        return ids[: len(ends)]

    def _after(self, prompt: str, texts: list[str]) -> list[_Pieces]:
        """Tokens of the texts as they stand after the prompt.

        Where a tokenizer joins the end of the prompt and the beginning of a text into one token,
        that text is tokenised alone: its tokens are never made of the prompt.
        """
        lead, n = self.prompt_ids(prompt), len(prompt)
        found: list[_Pieces] = []
        joined = self._alone([prompt + text for text in texts])
        for text, (ids, spans) in zip(texts, joined, strict=True):
            before = sum(end <= n for _, end in spans)
            if ids[:before] == lead:
                own = [(max(start - n, 0), end - n) for start, end in spans[before:]]
                found.append((ids[before:], own))
            else:
                found += self._alone([text])
        return found

    def _alone(self, texts: list[str]) -> list[_Pieces]:
        with _as_backbone_error(_FAILS):
            encodings = self.inner.encode_batch(texts, add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def token(self, token_id: int) -> str:
        """The token's piece of text, as the vocabulary spells it."""
        return str(self.inner.id_to_token(token_id))


def _clean(texts: Sequence[str]) -> list[str]:
    """A lone surrogate is not Unicode text; one character takes its place, so spans stay true."""
    return [LONE_SURROGATE.sub("\ufffd", text) for text in texts]


@contextmanager
def _as_backbone_error(what: str) -> Iterator[None]:
    """The Rust library raises bare Exception, or panics, on a file or a text it cannot take."""
    try:
        yield
    except (BackboneError, FileNotFoundError, MemoryError):
        raise
    except BaseException as error:
        # A panic is no Exception, so that nothing catches it by accident.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BackboneError(f"{what}: {error}") from None


def _check_bounded(inner: tokenizers.Tokenizer) -> None:
    """Refuse a tokenizer that turns a short text into gigabytes, or takes forever on one."""
    spec = json.loads(inner.normalizer.__getstate__()) if inner.normalizer else {}
    if (times := _growth(spec)) > MOST_GROWTH:
        raise BackboneError(
            f"the tokenizer's normaliser may make a text {times:,} times as long; at most "
            f"{MOST_GROWTH} times is accepted"
        )
    longest = getattr(inner.model, "max_input_chars_per_word", 0)
    if longest > MOST_WORD:
        raise BackboneError(
            f"the tokenizer looks for pieces in words of up to {longest:,} characters, which "
            f"takes too long; at most {MOST_WORD:,} are accepted"
        )


def _growth(spec: Mapping[str, Any]) -> int:
    """How many times as long a normaliser may make a text, beyond what Unicode forms do."""
    kind = spec.get("type")
    if kind == "Sequence":
        return prod(_growth(part) for part in spec["normalizers"])
    if kind == "Prepend":
        return 1 + len(spec["prepend"])
    if kind == "Replace":
        new, old = len(spec["content"]), len(spec["pattern"].get("String", ""))
        return max(1, -(-new // old)) if old else 1 + new  # an expression may match nothing
    if kind == "Precompiled":
        data = base64.b64decode(spec["precompiled_charsmap"])
        replacements = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
        longest = max(map(len, replacements))
        return 1 if longest <= UNICODE_BYTES else longest
    return 1


def _trim(text: str, spans: I32) -> None:
    """Leave out white space that a byte-level tokenizer counts to its tokens, in place."""
    spaces = [found.start() for found in WHITE_SPACE.finditer(text)]
    for i in np.flatnonzero(np.isin(spans[:, 0], spaces)):
        start, end = spans[i].tolist()
        piece = text[start:end]
        if piece.strip():
            spans[i, 0] = start + len(piece) - len(piece.lstrip())


def _keep_marks(text: str, spans: I32) -> None:
    """Give accents that the normaliser strips (e + U+0301) to the letter before, in place."""
    stops = [*spans[1:, 0].tolist(), len(text)]
    for i, (end, stop) in enumerate(zip(spans[:, 1].tolist(), stops, strict=False)):
        while end < stop and unicodedata.category(text[end]).startswith("M"):
            end += 1
        spans[i, 1] = end


def _unknown_id(inner: tokenizers.Tokenizer) -> int | None:
    if isinstance(inner.model, tokenizers.models.Unigram):  # which has it in its file only
        found: int | None = json.loads(inner.to_str())["model"].get("unk_id")
        return found
    token = getattr(inner.model, "unk_token", None)
    return inner.token_to_id(token) if isinstance(token, str) else None
