"""Documents from text files: one, or all below a folder (see `sources.read`)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from hplus.errors import InputError
from hplus.files import LINE_BYTES, decoded, megabytes, readable, shown, unpacked
from hplus.sources.document import Complain, Document, Place, documents_of

TEXTS = (".txt", ".md")

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(```|~~~)")


def tree(folder: Path, bad: Complain) -> Iterator[tuple[Document, Place]]:
    """Every text file below a folder is a document."""
    found = False
    for path, id in walk(folder, bad):
        found = True
        yield from text_file(path, id, bad)
    if not found:
        raise InputError(
            f"{shown(folder)} has no .txt or .md file and no corpus.jsonl; "
            "name a .jsonl, .csv or .parquet file itself"
        )


def text_file(path: Path, id: str, bad: Complain) -> Iterator[tuple[Document, Place]]:
    """The file is one document."""

    def make(path: Path) -> Document:
        text = decoded(_content(path), first=True)
        title = _first_heading(text) if Path(id.removesuffix(".gz")).suffix.lower() == ".md" else ""
        return Document(id, text.strip(), {"path": id} | ({"title": title} if title else {}))

    return documents_of(iter([path]), make, lambda: shown(path), bad)


def walk(folder: Path, bad: Complain) -> Iterator[tuple[Path, str]]:
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


def _entries(folder: Path, prefix: str, bad: Complain) -> list[tuple[str, Path]]:
    """Text files and folders; these end in a /, so that they sort as the files in them do."""
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
        bad(f"cannot read {shown(folder)}: {error.strerror}")
    return sorted(found)


def _is_text_file(entry: os.DirEntry[str]) -> bool:
    if Path(entry.name).suffix.lower() not in TEXTS:
        return False
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True  # a broken link: opening it reports the error


def _content(path: Path) -> bytes:
    with readable("the file"), path.open("rb") as raw:
        content = unpacked(raw).read(LINE_BYTES + 1)
    if len(content) > LINE_BYTES:
        raise InputError(f"the file has more than {megabytes(LINE_BYTES)}")
    return content


def _first_heading(text: str) -> str:
    """The first heading of a Markdown text, ignoring blocks of code."""
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.fullmatch(line)) and heading.group(1):
            return heading.group(1)
    return ""
