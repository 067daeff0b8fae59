"""Texts -> token ids with the characters each token covers.

Spans are in characters of the text as it was given, whatever the tokenizer's normaliser does
to it (lower-casing, accents, full-width forms). Special tokens are kept apart: they take part
in attention, but are never units, tags or lexical terms.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers

from hplus.errors import BackboneError
from hplus.types import I32, Tokens, offsets_of

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A `tokenizers` tokenizer that never cuts, never pads and keeps special tokens apart."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
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
            return cls(tokenizers.Tokenizer.from_str(path.read_text("utf-8")))
        except FileNotFoundError:
            raise BackboneError(f"{path} is missing; a backbone folder needs it") from None
        except Exception as error:  # the Rust library raises bare Exception on a bad file
            raise BackboneError(f"{path} is not a tokenizer file: {error}") from error

    def tokens(self, texts: Sequence[str]) -> Tokens:
        """Cut texts into tokens.

        >>> tokenizer.tokens(["type 2 diabetes"]).spans.tolist()
        [[0, 4], [5, 6], [7, 15]]
        """
        # A lone surrogate is not Unicode text; one character takes its place, so spans stay true.
        clean = [_LONE_SURROGATE.sub("\ufffd", text) for text in texts]
        encodings = self.inner.encode_batch(clean, add_special_tokens=False)
        lengths = [len(encoding) for encoding in encodings]
        ids = np.fromiter((i for e in encodings for i in e.ids), np.int32, sum(lengths))
        spans = np.array([s for e in encodings for s in e.offsets], np.int32).reshape(-1, 2)
        offsets = offsets_of(lengths)
        for text, first, last in zip(clean, offsets[:-1], offsets[1:], strict=True):
            _trim(text, spans[first:last])
            if not text.isascii():
                _keep_marks(text, spans[first:last])
        return Tokens(tuple(texts), ids, spans, offsets)

    def token(self, token_id: int) -> str:
        """The token's piece of text, as the vocabulary spells it."""
        return str(self.inner.id_to_token(token_id))


def _trim(text: str, spans: I32) -> None:
    """Leave out white space that a byte-level tokenizer counts to its tokens, in place."""
    for i, (start, end) in enumerate(spans.tolist()):
        if not text[start : start + 1].isspace():
            continue
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
    if isinstance(inner.model, tokenizers.models.Unigram):  # which tells it in its file only
        found: int | None = json.loads(inner.to_str())["model"].get("unk_id")
        return found
    token = getattr(inner.model, "unk_token", None)
    return inner.token_to_id(token) if isinstance(token, str) else None
