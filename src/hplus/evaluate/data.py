"""Retrieval sets in BEIR layout, plain or gz: corpus, queries, judgements."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hplus.errors import InputError


@dataclass(frozen=True)
class RetrievalSet:
    """Documents, the queries of one split, and their graded judgements."""

    document_ids: list[str]
    documents: list[str]
    query_ids: list[str]
    queries: list[str]
    judgements: dict[str, dict[str, int]]


def demo_folder(language: str) -> Path:
    """The corpus written for this project, "en" or "zh", inside the package."""
    return Path(str(resources.files("hplus"))) / "data" / f"demo-{language}"


def read_beir(folder: Path, split: str = "test") -> RetrievalSet:
    """Title and text joined by a space; queries are those the split judges, in file order."""
    judgements = _read_judgements(folder, split)
    corpus = _by_id(folder / "corpus.jsonl")
    queries = _by_id(folder / "queries.jsonl")
    missing = sorted(set(judgements) - set(queries))
    if missing:
        raise InputError(f"{folder}: judged queries without a text: {missing[:5]}")
    judged = {name: text for name, text in queries.items() if name in judgements}
    return RetrievalSet(
        list(corpus), list(corpus.values()), list(judged), list(judged.values()), judgements
    )


def texts_of(folder: Path) -> list[str]:
    """Every document and every query of a set, whatever the split: what training keeps clear of."""
    return [*_by_id(folder / "corpus.jsonl").values(), *_by_id(folder / "queries.jsonl").values()]


def _by_id(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, row in enumerate(_rows(path, "text"), start=1):
        if row["_id"] in texts:
            raise InputError(f"{path}:{number} repeats the id {row['_id']!r}")
        texts[row["_id"]] = _joined(row)
    return texts


def _joined(row: dict[str, str]) -> str:
    return f"{row.get('title') or ''} {row['text']}".strip()


def _rows(path: Path, *needed: str) -> Iterator[dict[str, str]]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}:{number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number} is not a JSON object")
        absent = [key for key in ("_id", *needed) if not isinstance(row.get(key), str)]
        if absent:
            raise InputError(f"{path}:{number} lacks {' and '.join(absent)}")
        yield row


def _read_judgements(folder: Path, split: str) -> dict[str, dict[str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    judgements: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_lines(path), start=1):
        fields = line.rstrip("\r\n").split("\t")
        if number == 1 and fields[0] == "query-id":
            continue
        try:
            query, document, grade = fields
            judgements.setdefault(query, {})[document] = int(grade)
        except ValueError:
            raise InputError(f"{path}:{number}: query, document and grade expected") from None
    return judgements


def _lines(path: Path) -> Iterator[str]:
    zipped = path.with_name(path.name + ".gz")
    if not path.exists() and not zipped.exists():
        raise InputError(f"{path} is missing, plain and as .gz; a BEIR folder is expected")
    try:
        if path.exists():
            with path.open(encoding="utf-8") as lines:
                yield from lines
        else:
            with gzip.open(zipped, "rt", encoding="utf-8") as lines:
                yield from lines
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
