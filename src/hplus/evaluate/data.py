"""Retrieval sets in BEIR layout, plain or gz: corpus, queries, judgements."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from hplus.errors import InputError
from hplus.files import numbered_lines


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
    """Every document and query of a set, whatever the split: what training must not repeat."""
    return [*_by_id(folder / "corpus.jsonl").values(), *_by_id(folder / "queries.jsonl").values()]


def sample(data: RetrievalSet, count: int, seed: int) -> RetrievalSet:
    """At most `count` of the queries, drawn by a seed, in the order of the file; 0 means all."""
    if not count or count >= len(data.queries):
        return data
    rows = np.sort(np.random.default_rng(seed).permutation(len(data.queries))[:count])
    return replace(
        data,
        query_ids=[data.query_ids[row] for row in rows],
        queries=[data.queries[row] for row in rows],
    )


def data_hash(data: RetrievalSet) -> str:
    """SHA-256 of documents, queries and judgements."""
    digest = hashlib.sha256()
    judged = {name: sorted(data.judgements[name].items()) for name in data.query_ids}
    parts = [data.document_ids, data.documents, data.query_ids, data.queries, judged]
    for part in parts:
        digest.update(json.dumps(part, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


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
    for number, line in _lines(path):
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
    for number, line in _lines(path):
        fields = line.split("\t")
        if number == 1 and fields[0] == "query-id":
            continue
        try:
            query, document, grade = fields
            judgements.setdefault(query, {})[document] = int(grade)
        except ValueError:
            raise InputError(f"{path}:{number}: expected query, document and grade") from None
    return judgements


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for file in (path, path.with_name(path.name + ".gz")):
        if file.exists():
            return numbered_lines(file)
    raise InputError(f"{path} is missing, plain and as .gz; expected a BEIR folder")
