"""Tokens that a tokenizer does not know: how many, and what to say about them.

A vocabulary of another language turns most of a text into one and the same unknown token. Such
tokens are in no view (`backbones/encode.py`, `views/lexical.py`), so they find nothing; here the
user is told.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hplus.backbones.tokenizer import Tokenizer
from hplus.errors import UnknownTokensWarning
from hplus.installed import OTHERS, folder_of
from hplus.texts import STEP_CHARACTERS, in_steps
from hplus.units.sentences import stretches

# Above the first share a text gets a warning, above the second a query is refused.
NOTICED = 0.1
REFUSED = 0.5
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff]")


@dataclass
class Count:
    """Tokens of some texts, those unknown among them, and whether Chinese was seen."""

    tokens: int = 0
    unknown: int = 0
    chinese: bool = False

    @property
    def share(self) -> float:
        """Unknown tokens per token; 0 without tokens."""
        return self.unknown / max(1, self.tokens)

    def add(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        """Count more texts."""
        if tokenizer.unknown is None:
            return
        pieces = (piece for text in texts for _, piece in stretches(text, STEP_CHARACTERS))
        for step in in_steps(pieces):  # a long text takes no more memory than others
            tokens, found = tokenizer.count_unknown(step)
            self.tokens += tokens
            self.unknown += found
            self.chinese |= bool(found) and any(_HAN.search(text) for text in step)

    def advice(self, what: str, model: str) -> str:
        """One sentence: how much of what is unknown, and which model to take."""
        better = (
            "take the model zh" + ("" if folder_of("zh") else f" ({OTHERS['zh']})")
            if self.chinese and model != "hplus-zh"
            else "take an encoder of the texts' language (hplus convert makes it a model)"
        )
        return (
            f"{self.unknown:,} of {self.tokens:,} tokens of {what} ({self.share:.0%}) are unknown "
            f"to the model {model} and find nothing; {better}"
        )

    def warn(self, what: str, model: str) -> None:
        """A warning if more than NOTICED is unknown."""
        if self.share > NOTICED:
            message = self.advice(what, model)
            warnings.warn(message, UnknownTokensWarning, stacklevel=3)


def counted(steps: Iterable[list[str]], tokenizer: Tokenizer, count: Count) -> Iterator[list[str]]:
    """The steps as they are, counted on their way."""
    for step in steps:
        count.add(tokenizer, step)
        yield step
