"""Documents from files of text, one each: a file, or all below a folder (see `sources.read`)."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from hplus.errors import InputError
from hplus.files import LINE_BYTES, decoded, megabytes, readable, shown, unpacked
from hplus.sources import pages
from hplus.sources.document import Complain, Document, Place, documents_of

TEXTS = (".txt", ".md")
PassedOver: TypeAlias = Callable[[str], None]
"""Called with the ending of every file of a folder that is no document."""

# How many endings are counted apart for people.
_ENDINGS = 10
# What the folder of an index has.
_INDEX = {"catalogue.sqlite", "segments"}
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(```|~~~)")


def tree(folder: Path, bad: Complain, passed_over: PassedOver) -> Iterator[tuple[Document, Place]]:
    """Every file below a folder that can be read is a document; others are `passed_over`."""
    found, others = False, Counter[str]()

    def note(ending: str) -> None:
        others[ending] += 1
        passed_over(ending)

    for path, id in walk(folder, bad, note):
        found = True
        yield from text_file(path, id, bad)
    if not found:
        has = f" (it has {counted(others)})" if others else ""
        name_it = "name a .jsonl, .csv or .parquet file itself"
        raise InputError(
            f"{shown(folder)} has no .txt, .md, .html or .pdf file that can be read{has} and no "
            f"corpus.jsonl; {pages.INSTALL if unreadable(others) else name_it}"
        )


def text_file(path: Path, id: str, bad: Complain) -> Iterator[tuple[Document, Place]]:
    """The file is one document."""
    kind = ending(id.removesuffix(".gz"))

    def make(path: Path) -> Document:
        if kind in pages.ENDINGS:
            page = pages.read_page(_content(path, pages.PAGE_BYTES), kind)
            text, title = page.text, page.title
        else:
            text = decoded(_content(path, LINE_BYTES), first=True).strip()
            title = _first_heading(text) if kind == ".md" else ""
        return Document(id, text, {"path": id} | ({"title": title} if title else {}))

    return documents_of(iter([path]), make, lambda: shown(path), bad)


def ending(name: str) -> str:
    """
    >>> ending("notes/Paper.PDF"), ending("Makefile")
    ('.pdf', '')
    """
    return Path(name).suffix.lower()


def counted(others: Mapping[str, int]) -> str:
    """
    >>> counted({".docx": 3, ".png": 12, "": 1})
    '12 .png, 3 .docx, 1 without an ending'
    """
    order = sorted(others, key=lambda one: (-others[one], one))
    parts = [f"{others[one]:,} {one or 'without an ending'}" for one in order[:_ENDINGS]]
    rest = sum(others[one] for one in order[_ENDINGS:])
    return ", ".join([*parts, *([f"{rest:,} of other kinds"] if rest else [])])


def unreadable(others: Mapping[str, int]) -> bool:
    """Whether some of these files could be read, if the readers were installed."""
    return any(one in pages.ENDINGS for one in others)


def walk(
    folder: Path, bad: Complain, passed_over: PassedOver = lambda _: None
) -> Iterator[tuple[Path, str]]:
    """The files of text below a folder with their ids, in the order of the ids."""
    endings = (*TEXTS, *(pages.ENDINGS if pages.installed() else ()))

    def entries(folder: Path, prefix: str) -> list[tuple[str, Path]]:
        return _entries(folder, prefix, endings, bad, passed_over)

    pending = [iter(entries(folder, ""))]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif entry[0].endswith("/"):
            pending.append(iter(entries(entry[1], entry[0])))
        else:
            yield entry[1], entry[0]


def _entries(
    folder: Path, prefix: str, endings: Sequence[str], bad: Complain, passed_over: PassedOver
) -> list[tuple[str, Path]]:
    """Files of text and folders; these end in a /, so that they sort as the files in them do."""
    found = []
    try:
        with os.scandir(folder) as scanned:
            entries = list(scanned)
        if {entry.name for entry in entries} >= _INDEX:
            return []  # `hplus index . notes.hplus`: the index itself is no document
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                found.append((f"{prefix}{entry.name}/", Path(entry.path)))
            elif not _is_file(entry):
                continue
            elif (kind := ending(entry.name)) in endings:
                found.append((f"{prefix}{entry.name}", Path(entry.path)))
            else:
                passed_over(shown(kind))
    except OSError as error:
        bad(f"cannot read {shown(folder)}: {error.strerror}")
    return sorted(found)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True  # a broken link: opening it reports the error


def _content(path: Path, most: int) -> bytes:
    with readable("the file"), path.open("rb") as raw:
        content = unpacked(raw).read(most + 1)
    if len(content) > most:
        raise InputError(f"the file has more than {megabytes(most)}")
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
