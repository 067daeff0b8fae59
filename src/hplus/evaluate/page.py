"""What a report is made of, and its two renderings: Markdown, and one file of HTML.

Blocks hold plain text; each rendering escapes it, so a name with < or | reads the same in both.
The HTML fetches nothing: its style and its pictures are inside.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --ground: #ffffff; --rule: #d5d9de;
  --soft: #f3f5f7; --quiet: #5c6670; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --ground: #15181b; --rule: #3a4147;
  --soft: #1f2428; --quiet: #9aa5af; } }
body { margin: 0 auto; max-width: 78rem; padding: 1rem 1.25rem 4rem; color: var(--ink);
  background: var(--ground); font: 16px/1.5 system-ui, sans-serif; }
h2 { margin-top: 3rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
p, li { max-width: 48rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; }
thead th { background: var(--soft); }
tbody th { font-weight: normal; }
.word { text-align: left; }
figure { margin: 1.5rem 0; }
figure svg { max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
figcaption { color: var(--quiet); font-size: .875rem; }
"""


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Items:
    sentences: list[str]


@dataclass(frozen=True)
class Picture:
    """One plot, drawn; name: of its files, without their ending."""

    name: str
    caption: str
    svg: str
    png: bytes


class Strong(str):
    """An entry in bold."""


@dataclass(frozen=True)
class Table:
    """Plain entries; the first `left` columns are words, the others figures."""

    columns: list[str]
    rows: list[list[str]]
    left: int = 1

    def markdown(self) -> str:
        rule = ["---"] * self.left + ["---:"] * (len(self.columns) - self.left)
        lines = [[_marked(entry) for entry in row] for row in (self.columns, *self.rows)]
        lines.insert(1, rule)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def html(self) -> str:
        head = "".join(
            f'<th class="word">{html.escape(name)}</th>'
            if place < self.left
            else f"<th>{html.escape(name)}</th>"
            for place, name in enumerate(self.columns)
        )
        body = "\n".join(
            f"<tr>{''.join(self._entry(place, entry) for place, entry in enumerate(row))}</tr>"
            for row in self.rows
        )
        return (
            f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>"
        )

    def _entry(self, place: int, entry: str) -> str:
        text = html.escape(entry)
        text = f"<strong>{text}</strong>" if isinstance(entry, Strong) else text
        if place < self.left:
            return f'<th class="word" scope="row">{text}</th>'
        return f"<td>{text}</td>"


Block = Heading | Items | Table | Picture | str
"""What a page is made of, in plain text; a string is a paragraph."""


def markdown(blocks: Sequence[Block]) -> str:
    """The page as Markdown."""
    parts = []
    for block in blocks:
        match block:
            case Heading(level, text):
                parts.append(f"{'#' * level} {markdown_text(text)}")
            case Items(found):
                parts.append("\n".join(f"- {markdown_text(sentence)}" for sentence in found))
            case Table():
                parts.append(block.markdown())
            case Picture(name, caption):
                parts.append(f"![{markdown_text(caption)}](plots/{name}.svg)")
            case _:
                parts.append(markdown_text(block))
    return "\n\n".join(parts) + "\n"


def html_page(title: str, blocks: Sequence[Block]) -> str:
    """The page as one HTML file, pictures inside."""
    parts = []
    for block in blocks:
        match block:
            case Heading(level, text):
                parts.append(f"<h{level}>{html.escape(text)}</h{level}>")
            case Items(found):
                entries = "\n".join(f"<li>{html.escape(sentence)}</li>" for sentence in found)
                parts.append(f"<ul>\n{entries}\n</ul>")
            case Table():
                parts.append(block.html())
            case Picture(_, caption):
                text = html.escape(caption)
                parts.append(
                    f"<figure>\n{inline(block)}\n<figcaption>{text}</figcaption>\n</figure>"
                )
            case _:
                parts.append(f"<p>{html.escape(block)}</p>")
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def markdown_text(text: str) -> str:
    """Plain text as Markdown that reads the same: no tags, columns, emphasis or links."""
    text = re.sub(r"<(?! )", "&lt;", " ".join(text.split()).replace("&", "&amp;"))
    for sign in "\\|*`":
        text = text.replace(sign, f"\\{sign}")
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # inside a word it means nothing
    return text.replace("](", "]\\(")


def inline(picture: Picture) -> str:
    """Its SVG for a page of HTML: no prologue, no addresses, names of its own."""
    svg = picture.svg[picture.svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{picture.name}-", svg)
    return svg.strip()


def _marked(entry: str) -> str:
    text = markdown_text(entry)
    return f"**{text}**" if isinstance(entry, Strong) else text
