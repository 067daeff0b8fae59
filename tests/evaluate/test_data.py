"""BEIR folders: plain and gz read alike; what is wrong is named by file and line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hplus.errors import InputError
from hplus.evaluate.data import RetrievalSet, demo_folder, read_beir

CORPUS: list[dict[str, object]] = [
    {"_id": "d1", "title": "Asthma", "text": "Inhaled drugs.", "metadata": {"url": "x"}},
    {"_id": "d2", "title": "", "text": "糖尿病\u2028患者"},
    {"_id": "d3", "text": "No title."},
]
QUERIES = [
    {"_id": "q2", "text": "insulin"},
    {"_id": "q1", "text": "asthma"},
    {"_id": "unjudged", "text": "of another split"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td3\t0\nq2\td2\t1\n"


def lines(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_set(folder: Path, *, zipped: bool = False, **changed: str) -> Path:
    """A small sound set, except for the files given: corpus, queries or qrels."""
    files = {
        "corpus.jsonl": changed.get("corpus", lines(CORPUS)),
        "queries.jsonl": changed.get("queries", lines(QUERIES)),
        "qrels/test.tsv": changed.get("qrels", QRELS),
    }
    (folder / "qrels").mkdir(parents=True)
    for name, text in files.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


def test_a_set_is_read_as_written(tmp_path: Path) -> None:
    assert read_beir(write_set(tmp_path)) == RetrievalSet(
        document_ids=["d1", "d2", "d3"],
        documents=["Asthma Inhaled drugs.", "糖尿病\u2028患者", "No title."],
        query_ids=["q2", "q1"],
        queries=["insulin", "asthma"],
        judgements={"q1": {"d1": 2, "d3": 0}, "q2": {"d2": 1}},
    )


def test_plain_and_gz_read_alike(tmp_path: Path) -> None:
    plain = read_beir(write_set(tmp_path / "plain"))
    assert read_beir(write_set(tmp_path / "zipped", zipped=True)) == plain


def test_qrels_may_lack_a_header_and_end_in_crlf(tmp_path: Path) -> None:
    bare = QRELS.split("\n", 1)[1].replace("\n", "\r\n")
    found = read_beir(write_set(tmp_path / "bare", qrels=bare))
    assert found == read_beir(write_set(tmp_path / "plain"))


def test_another_split(tmp_path: Path) -> None:
    folder = write_set(tmp_path)
    (folder / "qrels" / "dev.tsv").write_text("unjudged\td1\t1\n")
    assert read_beir(folder, "dev").query_ids == ["unjudged"]


GOOD = lines(CORPUS[:1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"corpus": GOOD + "{\n"}, "corpus.jsonl:2 is not JSON"),
        ({"corpus": GOOD + "\n"}, "corpus.jsonl:2 is not JSON"),
        ({"corpus": GOOD + '{"_id": "d2"}\n'}, "corpus.jsonl:2 lacks text"),
        ({"corpus": '{"title": "x"}\n'}, "corpus.jsonl:1 lacks _id and text"),
        ({"corpus": '{"_id": 7, "text": "x"}\n'}, "corpus.jsonl:1 lacks _id"),
        ({"corpus": GOOD + '["d2", "x"]\n'}, "corpus.jsonl:2 is not a JSON object"),
        ({"corpus": GOOD + "null\n"}, "corpus.jsonl:2 is not a JSON object"),
        ({"queries": '{"_id": "q1", "text": null}\n'}, "queries.jsonl:1 lacks text"),
        ({"queries": lines(QUERIES[:1])}, r"judged queries without a text: \['q1'\]"),
        ({"qrels": "q1\td1\t1\nq1\td2\n"}, "test.tsv:2: expected query, document and grade"),
        ({"qrels": "q1\td1\t1\tx\n"}, "test.tsv:1: expected query, document and grade"),
        ({"qrels": "q1\td1\thigh\n"}, "test.tsv:1: expected query, document and grade"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_errors_name_file_and_line(
    tmp_path: Path, changed: dict[str, str], message: str, zipped: bool
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_beir(write_set(tmp_path, zipped=zipped, **changed))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_set(tmp_path)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing, plain and as .gz"):
        read_beir(folder)


@pytest.mark.parametrize("damage", ["not gz", "cut", "flipped"])
def test_a_damaged_gz_is_named(tmp_path: Path, damage: str) -> None:
    folder = write_set(tmp_path, zipped=True)
    path = folder / "corpus.jsonl.gz"
    sound = path.read_bytes()
    middle = len(sound) // 2
    path.write_bytes(
        {
            "not gz": b"\x1f\x8bplain text\n",
            "cut": sound[:middle],
            "flipped": sound[:middle] + bytes([sound[middle] ^ 0xFF]) + sound[middle + 1 :],
        }[damage]
    )
    with pytest.raises(InputError, match=r"corpus.jsonl.gz is damaged: "):
        read_beir(folder)


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    folder = write_set(tmp_path)
    (folder / "corpus.jsonl").write_bytes('{"_id": "d1", "text": "caf\xe9"}\n'.encode("latin-1"))
    with pytest.raises(InputError, match=r"corpus.jsonl:1: not UTF-8"):
        read_beir(folder)


def test_a_null_title_is_left_out(tmp_path: Path) -> None:
    rows = [{"_id": "d1", "title": None, "text": "Only text."}]
    assert read_beir(write_set(tmp_path, corpus=lines(rows))).documents == ["Only text."]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_demo_corpora_are_read(language: str) -> None:
    found = read_beir(demo_folder(language))
    assert len(found.documents) == len(set(found.document_ids)) > 10
    assert set(found.judgements) == set(found.query_ids)
    judged = {document for grades in found.judgements.values() for document in grades}
    assert judged <= set(found.document_ids)
