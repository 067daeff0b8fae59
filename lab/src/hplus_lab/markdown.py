"""Tables and plain text as Markdown that reads as it was meant, whatever names it holds."""

from __future__ import annotations

import re
from dataclasses import dataclass


class Strong(str):
    """An entry in bold."""


@dataclass(frozen=True)
class TextTable:
    """Plain entries; the first `left` columns are words, the others figures."""

    columns: list[str]
    rows: list[list[str]]
    left: int = 1

    def markdown(self) -> str:
        """With every entry escaped."""
        rule = ["---"] * self.left + ["---:"] * (len(self.columns) - self.left)
        lines = [[_entry(entry) for entry in row] for row in (self.columns, *self.rows)]
        lines.insert(1, rule)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """Plain text as Markdown that reads the same: no tags, columns, emphasis or links."""
    text = re.sub(r"<(?! )", "&lt;", " ".join(text.split()).replace("&", "&amp;"))
    for sign in "\\|*`":
        text = text.replace(sign, f"\\{sign}")
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # inside a word it means nothing
    return text.replace("](", "]\\(")


def _entry(entry: str) -> str:
    text = escaped(entry)
    return f"**{text}**" if isinstance(entry, Strong) else text
