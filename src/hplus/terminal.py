"""What people read: characters that command a terminal, or that nobody sees, are made visible.

Documents, ids, file names and queries come from anywhere. An escape sequence in one can move the
cursor, recolour or retitle a terminal or hide a line, a bidi control turns text around, and a tag
character is not seen at all. Each is shown as one character, so that offsets into a text stay true:
a control picture (␛, ␇, ␡), or � where there is none. A tab is a blank and a line end stays.
Joiners, soft hyphens and variation selectors stay too: languages and emoji need them.

`streams` puts this at the border of a command: what is printed goes through it, and what rich
prints goes through `Screen`, which treats everything but its own colours the same way.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# C0 but the line end, DEL, C1; bidi controls; separators and fillers without a width; tags.
_HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text, character by character, with a picture for everything that is not for the eye.

    >>> visible("title \\x1b]0;gone\\x07 and \\u202eback")
    'title ␛]0;gone␇ and �back'
    """
    return _HIDDEN.sub(_picture, text)


def on_one_line(text: str) -> str:
    """The same, line ends included: a file's name must not look like a line of ours."""
    return visible(text).replace("\n", "␊")


def escaped(json: str) -> str:
    """JSON that says the same without these characters: each becomes its \\u escape.

    >>> escaped('{"text": "\\u202eback"}') == '{"text": "' + r'\\u202e' + 'back"}'
    True
    """
    return _HIDDEN.sub(_escape, json)


def _picture(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\t":
        return " "
    if character == "\x7f":
        return "␡"
    return chr(0x2400 + ord(character)) if character < " " else "\ufffd"


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def screen(*, stderr: bool = False, **options: Any) -> Console:
    """A console of rich for texts that come from anywhere: no markup, no emoji codes, no commands
    but its own."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                own = segment.control  # rich moving its cursor
                yield segment if own else Segment(visible(segment.text), segment.style)

    return Screen(highlight=False, markup=False, emoji=False, stderr=stderr, **options)


class _Stream:
    """A text stream that shows what is printed to it; rich, which has its own way, goes past it."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def streams() -> Iterator[None]:
    """Within the block, nothing printed to standard output or error commands a terminal."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (s if s is None else _Stream(s) for s in (out, err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
