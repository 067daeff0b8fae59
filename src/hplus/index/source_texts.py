"""Documents from text files: one, or all below a folder (see `sources.py`)."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from hplus.errors import InputError
from hplus.index.document import Document, shown
from hplus.index.source_lines import (
    LINE_BYTES,
    Report,
    decoded,
    documents_of,
    megabytes,
    unzipped,
)

TEXTS = (".txt", ".md")

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(```|~~~)")


def tree(folder: Path, bad: Report) -> Iterator[Document]:
    found = False
    for path, id in _walk(folder, bad):
        found = True
        yield from text_file(path, id, bad)
    if not found:
        raise InputError(
            f"{shown(str(folder))} has no .txt or .md file and no corpus.jsonl; "
            "give a .jsonl, .csv or .parquet file by its own name"
        )


def text_file(path: Path, id: str, bad: Report) -> Iterator[Document]:
    def make(path: Path) -> Document:
        text = decoded(_content(path), first=True)
        title = _first_heading(text) if Path(id.removesuffix(".gz")).suffix.lower() == ".md" else ""
        return Document(id, text.strip(), {"path": id} | ({"title": title} if title else {}))

    return documents_of(iter([path]), make, lambda: shown(str(path)), bad)


def _walk(folder: Path, bad: Report) -> Iterator[tuple[Path, str]]:
    """The text files below a folder with their ids, in the order of the ids."""
    pending = [iter(_entries(folder, "", bad))]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif entry[0].endswith("/"):
            pending.append(iter(_entries(entry[1], entry[0], bad)))
        else:
            yield entry[1], entry[0]


def _entries(folder: Path, prefix: str, bad: Report) -> list[tuple[str, Path]]:
    """Text files and folders, these with a / at the end, so that they sort as their files do."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append((f"{prefix}{entry.name}/", Path(entry.path)))
                elif _is_text_file(entry):
                    found.append((f"{prefix}{entry.name}", Path(entry.path)))
    except OSError as error:
        bad(f"{shown(str(folder))}: cannot be read: {error.strerror}")
    return sorted(found)


def _is_text_file(entry: os.DirEntry[str]) -> bool:
    if Path(entry.name).suffix.lower() not in TEXTS:
        return False
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True  # a link that leads nowhere; told when it is opened


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as raw:
            content = unzipped(raw).read(LINE_BYTES + 1)
    except EOFError:
        raise InputError("cut short: the gz file ends too early") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LINE_BYTES:
        raise InputError(f"the file has more than {megabytes(LINE_BYTES)}")
    return content


def _first_heading(text: str) -> str:
    """The first heading of a Markdown text; what looks like one in a block of code is none."""
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.fullmatch(line)) and heading.group(1):
            return heading.group(1)
    return ""
