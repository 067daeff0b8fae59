"""A corpus divided into shards: each document in one, whoever reads them in whatever order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus import Budget, Columns, HPlus, InputError
from hplus.bulk.documents import Documents
from hplus.bulk.job import Job, job_of
from shards import ROWS, write_rows


@given(rows=st.integers(0, 10**7), shards=st.integers(1, 500))
def test_shards_partition_the_corpus_and_are_of_equal_size(rows: int, shards: int) -> None:
    job = Job("f", "small", "s", rows, shards, Budget(), 8, "int8")
    bounds = [job.bounds(shard) for shard in range(1, shards + 1)]
    ends = [rows if last is None else last for _, last in bounds]
    assert [first for first, _ in bounds] == [0, *ends[:-1]]
    assert ends[-1] == rows
    sizes = {last - first for (first, _), last in zip(bounds, ends, strict=True)}
    assert max(sizes) - min(sizes) <= 1
    assert bounds[-1][1] is None


@pytest.mark.parametrize("order", [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [2, 4, 1, 1, 3, 5]])
def test_any_order_reads_the_same_documents(corpus: Path, job: Job, order: list[int]) -> None:
    documents = Documents(corpus, job)
    found = {shard: documents.of(shard) for shard in order}
    assert [d.id for shard in range(1, 6) for d in found[shard]] == [row["_id"] for row in ROWS]


def test_shards_in_ascending_order_read_the_source_once(
    corpus: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []
    read = Documents._read
    monkeypatch.setattr(Documents, "_read", lambda self: times.append(1) or read(self))
    documents = Documents(corpus, job)
    for shard in (1, 2, 4, 5):
        documents.of(shard)
    assert len(times) == 1
    documents.of(3)
    assert len(times) == 2


def test_an_id_that_repeats_in_another_shard_is_found_by_every_later_one(
    tmp_path: Path, tiny: HPlus
) -> None:
    corpus = write_rows(tmp_path / "twice.jsonl", [*ROWS, ROWS[0]])
    job = job_of(tiny, corpus, shards=4)
    assert len(Documents(corpus, job).of(1)) == 6
    with pytest.raises(InputError, match=r"twice.jsonl:24: the id 'd0' repeats"):
        Documents(corpus, job).of(4)


def test_equal_texts_without_ids_have_ids_of_their_own_in_every_shard(
    tmp_path: Path, tiny: HPlus
) -> None:
    corpus = write_rows(tmp_path / "equal.jsonl", [{"text": "type 2 diabetes"}] * 6)
    job = job_of(tiny, corpus, shards=3)
    alone = [d.id for shard in (1, 2, 3) for d in Documents(corpus, job).of(shard)]
    assert len(set(alone)) == 6
    assert alone[-1] == f"{alone[0]}-6"


def test_bad_rows_are_skipped_and_told_apart_from_documents(tmp_path: Path, tiny: HPlus) -> None:
    corpus = tmp_path / "bad.jsonl"
    write_rows(corpus, ROWS)
    lines = corpus.read_text().splitlines()
    lines[3], lines[20] = "{", '{"text": 5}'
    corpus.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"bad.jsonl:4: not JSON"):
        Documents(corpus, job_of(tiny, corpus, shards=4)).of(1)
    told: list[str] = []
    job = job_of(tiny, corpus, shards=4, on_error="skip")
    documents = Documents(corpus, job, told.append)
    found = [d.id for shard in range(1, 5) for d in documents.of(shard)]
    assert found == [row["_id"] for i, row in enumerate(ROWS) if i not in (3, 20)]
    assert [message.split(": ")[0].split("/")[-1] for message in told] == [
        "bad.jsonl:4",
        "bad.jsonl:21",
    ]


def test_a_job_is_the_same_after_a_round_trip(tiny: HPlus, corpus: Path) -> None:
    columns = Columns(text=("text",), id="_id")
    for job in (
        job_of(tiny, corpus),
        job_of(tiny, corpus, shards=3, columns=columns, passages=20, budget=4, width=16),
    ):
        assert Job.of_json(job.as_json()) == job
    assert job_of(tiny, corpus).shards == 1


def test_every_difference_between_jobs_has_words(job: Job) -> None:
    changes = {
        "fingerprint": "a" * 64,
        "source": "b" * 64,
        "rows": 24,
        "shards": 6,
        "budget": Budget(3),
        "width": 8,
        "format": "f32",
        "passages": 9,
        "columns": Columns(),
        "on_error": "skip",
    }
    for name, value in changes.items():
        assert job.difference(replace(job, **{name: value})), name
    assert job.difference(replace(job, model="elsewhere")) == ""
    assert job.difference(replace(job, rows=24)) == "documents: 24, not 23"
    assert job.difference(replace(job, fingerprint="a" * 64)).startswith("model aaaaaaaaaaaa, not ")


def test_the_same_documents_in_other_bytes_are_another_source(tiny: HPlus, corpus: Path) -> None:
    before = job_of(tiny, corpus, shards=5)
    corpus.write_text(corpus.read_text().replace("d7", "dd7"))
    assert before.difference(job_of(tiny, corpus, shards=5)).startswith("a source of the SHA-256")


def test_a_tree_of_texts_is_a_source_too(tmp_path: Path, tiny: HPlus) -> None:
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    for name in ("a.txt", "below/b.md", "c.txt"):
        (tree / name).write_text(f"heart failure in {name}")
    job = job_of(tiny, tree, shards=2)
    assert [d.id for s in (1, 2) for d in Documents(tree, job).of(s)] == [
        "a.txt",
        "below/b.md",
        "c.txt",
    ]
    (tree / "c.txt").rename(tree / "d.txt")
    assert job.difference(job_of(tiny, tree, shards=2))


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        ("-", {}, "expected a file or a folder"),
        (["a text"], {}, "expected a file or a folder"),
        ("none.jsonl", {}, "none.jsonl is missing"),
        (None, {"shards": 0}, "expected shards to be a whole number of 1 or more, got 0"),
        (None, {"shards": 10**6}, "expected shards to be a whole number of 1 to 99,999"),
        (None, {"format": "int2"}, "expected format to be one of int4, int8, f16, f32, got 'int2'"),
        (None, {"format": "int4", "width": 7}, "int4 keeps two numbers a byte, so width 7 must be"),
        (None, {"width": 33}, "expected width to be a whole number of 1 to 32, got 33"),
    ],
)
def test_what_cannot_be_a_job_is_one_sentence(
    tiny: HPlus, corpus: Path, source: object, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        job_of(tiny, corpus if source is None else source, **options)  # type: ignore[arg-type]
