"""Explanations as HTML: static, self-contained, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from hplus.search.explained import Readable, readable
from hplus.search.snippets import Snippet, excerpt
from hplus.terminal import visible
from hplus.types import Explanation

# Backgrounds of marked phrases, readable under black text.
SHADES = ("#b3e5fc", "#f8bbd0", "#c8e6c9", "#fff59d", "#d1c4e9", "#ffccbc")
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#000;"
    "background:#fff}"
)


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page."""
    return visible(
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def explanation(query: str, text: str, why: Explanation, label: str) -> str:
    """One document: its score, query and document with matching phrases on one ground, figures."""
    found = readable(why, text)
    asked = excerpt(query, [line.spans for line in found.lines])
    there = excerpt(text, [line.document_spans for line in found.lines])
    return (
        f"<section><p><strong>{escape(label)}</strong> {escape(found.sum)}</p>"
        f"<p>{marked(asked)}</p><blockquote>{marked(there)}</blockquote>{figures(found)}</section>"
    )


def figures(found: Readable) -> str:
    """A table of what each phrase gave, and the exact words."""
    rows = "".join(_rows(found))
    notes = "".join(
        f"<p><small>{name}: {escape(what)}</small></p>"
        for name, what in (("exact words", found.exact), ("dropped", found.left_out))
        if what
    )
    return f"<table>{rows}</table>{notes}"


def _rows(found: Readable) -> Iterable[str]:
    most = max((line.thousandths for line in found.lines), default=0) or 1
    cell = '<td style="text-align:left">'
    for rank, line in enumerate(found.lines):
        shade = SHADES[rank % len(SHADES)]
        width = max(0, round(120 * line.thousandths / most))
        bar = f'<div style="background:{shade};width:{width}px;height:1em"></div>'
        yield (
            f"<tr><td>{found.shown(line.thousandths)}</td>{cell}{bar}</td>"
            f"{cell}{escape(line.text)}</td><td>{line.similarity:.2f}</td>"
            f"{cell}{escape(line.found) or 'nothing'}</td></tr>"
        )
    names, own = found.light
    if names:
        named = escape(", ".join(names))
        yield f"<tr><td>{found.shown(own)}</td><td></td>{cell}{named}</td><td></td><td></td></tr>"


def marked(shown: Snippet) -> str:
    """The snippet with every mark on its ground; a later mark covers an earlier one."""
    ground: list[int | None] = [None] * len(shown.text)
    for mark in shown.marks:
        ground[mark.start : mark.end] = [mark.rank] * (mark.end - mark.start)
    pieces, start = [], 0
    for end in range(1, len(ground) + 1):
        if end == len(ground) or ground[end] != ground[start]:
            piece, rank = escape(shown.text[start:end]), ground[start]
            if rank is not None:
                shade = SHADES[rank % len(SHADES)]
                piece = f'<mark style="background:{shade}">{piece}</mark>'
            pieces.append(piece)
            start = end
    return "".join(pieces)
