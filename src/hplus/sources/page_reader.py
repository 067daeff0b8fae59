"""The process that reads one HTML or PDF file from its input: `page_reader.py HTML|PDF MEMORY`.

It writes {"text", "title"} or {"error"} as JSON. It is run by `pages.py` and imports nothing of
ours, so that it starts quickly.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import re
import sys
from typing import Any

CHARACTERS = 64 * 2**20
"""The longest text."""
# What is no text to read.
DROPPED = ("head", "script", "style", "noscript", "template", "svg", "iframe", "object")
# What begins and ends a paragraph, and what a line; anything else is within one.
PARAGRAPHS = frozenset(
    ("blockquote", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul")
)
LINES = frozenset((
    "address", "article", "aside", "body", "br", "caption", "dd", "details", "dialog", "div", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "nav",
    "option", "section", "summary", "tr",
))  # fmt: skip
_CHARSET = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,400}?(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)


def read_html(content: bytes) -> tuple[str, str]:
    """Text with a line for each block, and the title, which comes first unless it is there."""
    from selectolax.lexbor import LexborHTMLParser

    parser = LexborHTMLParser(decode(content))
    heading = parser.css_first("title")
    title = "" if heading is None else " ".join((heading.text() or "").split())
    text = tidy("".join(pieces(parser.body))) if parser.body is not None else ""
    return (text if text.startswith(title) else f"{title}\n\n{text}".strip()), title


def pieces(root: Any) -> list[str]:
    """The text below a node in reading order, with the breaks around blocks; without recursion."""
    found: list[str] = []
    node, verbatim = root, 0
    while True:
        tag = node.tag
        if tag == "-text":
            text = node.text_content or ""
            found.append(text if verbatim else re.sub(r"\s+", " ", text))
        inside = node.first_child if tag not in DROPPED else None
        found.append(edge(tag))
        if inside is not None:
            verbatim += tag == "pre"
            node = inside
            continue
        while node.next is None or node.mem_id == root.mem_id:
            if node.mem_id == root.mem_id:
                return found
            node = node.parent
            verbatim -= node.tag == "pre"
            found.append(edge(node.tag))
        node = node.next


def edge(tag: str) -> str:
    """What separates an element from the text around it."""
    if tag in PARAGRAPHS:
        return "\n\n"
    if tag in LINES:
        return "\n"
    return " " if tag in ("td", "th", "img") else ""


def tidy(text: str) -> str:
    """No blanks at the ends of lines, no more than one blank line.

    >>> tidy(" a  \\n \\n\\n\\n b ")
    'a\\n\\nb'
    """
    lines = [re.sub(r"[ \t\r\f]+", " ", line).strip() for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def decode(content: bytes) -> str:
    """By the byte order mark, what the page declares, UTF-8, or what browsers fall back to."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            return content.decode(name, "replace")
    declared = _CHARSET.search(content[:4096])
    for name in (declared.group(1).decode() if declared else "utf-8", "utf-8"):
        try:
            return content.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return content.decode("cp1252", "replace")


def read_pdf(content: bytes) -> tuple[str, str]:
    """The text page by page, and the title of the file."""
    from pypdf import PdfReader

    logging.disable()  # of every oddity of a file
    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it needs a password")
    texts, characters = [], 0
    for page in reader.pages:
        texts.append(page.extract_text())
        characters += len(texts[-1])
        if characters > CHARACTERS:
            raise ValueError(f"it has more than {CHARACTERS:,} characters")
    about = reader.metadata
    title = "" if about is None else " ".join(str(about.title or "").split())
    text = "\n\n".join(tidy(text) for text in texts).strip()
    if not text:
        raise ValueError("it has no text; are its pages images?")
    return text, title


def main() -> None:
    """Read, and say what was found."""
    kind, memory = sys.argv[1:]
    try:
        import resource
    except ImportError:  # pragma: no cover  # Windows
        pass
    else:
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    try:
        content = sys.stdin.buffer.read()
        text, title = (read_pdf if kind == "PDF" else read_html)(content)
        # Half a surrogate pair, and NUL, are no text.
        found = {"text": cleaned(text), "title": cleaned(title)}
        if len(found["text"]) > CHARACTERS:
            raise ValueError(f"it has more than {CHARACTERS:,} characters")
    except MemoryError:
        found = {"error": f"it needs more than {int(memory) >> 20:,} MB of memory"}
    except Exception as error:  # whatever a reader raises on a file that is not what it seems
        found = {"error": " ".join(str(error).split())[:200] or type(error).__name__}
    sys.stdout.write(json.dumps(found))


def cleaned(text: str) -> str:
    """Text that can be stored: no halves of surrogate pairs, no control characters."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", " ", whole).strip()


if __name__ == "__main__":
    main()
