"""push, pull and diff: whole indexes to an engine and back, as often as one likes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brute_force import ALPHAS, QuickDisk
from builders import assert_same, random_encoded, text_of_words
from hplus import InputError, ModelMismatchError, ServiceError
from hplus.any_index import settings_for
from hplus.cli import main
from hplus.engines import open_store, transfer
from hplus.index import Index
from hplus.storage.create import create

N = 150
WIDTH = 8
ENGINES = ["qdrant", "postgres"]
NEW_URL = Callable[[str], str]


def made(
    path: Path,
    *,
    format: Any = "int8",
    count: int = N,
    mean: tuple[float, ...] | None = None,
    **options: Any,
) -> Index:
    """An index of random documents."""
    usual = {"width": WIDTH, "global_width": WIDTH, "fusion": ALPHAS, "fingerprint": "none"}
    settings: Any = {**usual, **options}
    create(path, replace(settings_for(None, format=format, **settings), mean=mean), QuickDisk())
    index = Index.open(path, disk=QuickDisk())
    random = np.random.default_rng(5)
    lengths = random.integers(0, 5, count)
    encoded = random_encoded(random, lengths.tolist(), WIDTH, dropped=(lengths // 2).tolist())
    index.add_encoded(
        [f"d{i:03d}" for i in range(count)],
        encoded,
        texts=[text_of_words() + str(i) for i in range(count)],
        metadata=[{"n": i, "tags": ["a", "b"][: i % 3]} for i in range(count)],
    )
    return index


@pytest.fixture
def index(folder: Path) -> Any:
    with made(folder) as one:
        yield one


@pytest.mark.parametrize("mean", [None, (0.2,) * WIDTH], ids=["no mean", "a mean"])
@pytest.mark.parametrize("engine", ENGINES)
def test_there_and_back_again_is_the_same_index(
    folder: Path, tmp_path: Path, new_url: NEW_URL, engine: str, mean: tuple[float, ...] | None
) -> None:
    """To the last bit, int8 codes included; a second push or pull moves nothing."""
    index = made(folder, mean=mean)
    store = transfer.open_or_create(new_url(engine), index, {})
    assert transfer.push(index, store, workers=3) == transfer.Moved(N, 0, 0)
    assert transfer.push(index, store) == transfer.Moved(0, N, 0)
    assert not transfer.diff(index, store)
    copy, moved = transfer.pull(store, tmp_path / "copy.hplus")
    assert moved == transfer.Moved(N, 0)
    assert (copy.settings, copy.terms) == (index.settings, index.terms)
    for (ours, encoded), (theirs, stored) in zip(_sorted(index), _sorted(copy), strict=True):
        assert ours == theirs
        assert_same(stored, encoded)
    assert transfer.pull(store, tmp_path / "copy.hplus")[1] == transfer.Moved(0, N)
    copy.close()
    index.close()
    store.close()


def _sorted(index: Index) -> list[Any]:
    """Every document with its encoding, by id."""
    pairs = [(own[0], some) for own, some in transfer.encodings(index, 1)]
    return sorted(pairs, key=lambda pair: pair[0].id)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_push_goes_on_where_it_was_interrupted(
    index: Index, new_url: NEW_URL, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = transfer.open_or_create(new_url(engine), index, {})
    monkeypatch.setattr(transfer, "STEP", 16)
    write, calls = type(store).write, []

    def failing(self: Any, documents: Any, encoded: Any) -> None:
        calls.append(len(documents))
        if len(calls) == 4:
            raise ServiceError("the network is gone")
        write(self, documents, encoded)

    monkeypatch.setattr(type(store), "write", failing)
    with pytest.raises(ServiceError, match="the network is gone"):
        transfer.push(index, store, workers=1)
    there = store.count()
    assert 0 < there < N
    done = transfer.push(index, store, workers=2)
    assert (done.moved, done.unchanged) == (N - there, there)
    assert not transfer.diff(index, store)
    store.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_diff_says_how_the_two_differ(index: Index, new_url: NEW_URL, engine: str) -> None:
    store = transfer.open_or_create(new_url(engine), index, {})
    transfer.push(index, store)
    with Index.connect(store.address.url) as there:  # type: ignore[attr-defined]
        there.delete("d000")
        there.update_metadata({"d001": {"n": -1}})
        random = random_encoded(np.random.default_rng(1), [2], WIDTH)
        there.add_encoded(["new"], random, texts=[text_of_words()])
        there.delete("d002")
        there.add_encoded(["d002"], random, texts=[text_of_words()])
        text = index["d003"].text
        there.delete("d003")
        there.add_encoded(["d003"], random, texts=[text], metadata=[index["d003"].metadata])
    found = transfer.diff(index, store)
    assert bool(found)
    assert found.only_here == ["d000"]
    assert found.only_there == ["new"]
    assert (found.texts, found.metadata, found.encodings) == (["d002"], ["d001"], ["d003"])
    assert found.same == N - 4
    assert transfer.push(index, store, sync=True) == transfer.Moved(4, N - 4, 1)
    assert not transfer.diff(index, store)
    store.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_collection_of_another_model_is_refused(
    index: Index, tmp_path: Path, new_url: NEW_URL, engine: str
) -> None:
    url = new_url(engine)
    store = transfer.open_or_create(url, index, {})
    transfer.push(index, store)
    store.close()
    with (
        made(tmp_path / "other", fingerprint="another", count=3) as other,
        pytest.raises(ModelMismatchError, match=r"made with model none .* the index with ano"),
    ):
        transfer.open_or_create(url, other, {})
    with (
        made(tmp_path / "narrow", width=4, count=3) as other,
        pytest.raises(InputError, match="keeps width 8, the index 4; push to a new"),
    ):
        transfer.open_or_create(url, other, {})
    with pytest.raises(InputError, match="exists already; stored is for a new one"):
        transfer.open_or_create(url, index, {"stored": "f16"})
    again = open_store(url)
    assert again.count() == N  # nothing half done
    again.close()


def test_an_index_of_passages_is_refused(tiny: Any, tmp_path: Path, new_url: NEW_URL) -> None:
    with (
        Index.create(tmp_path / "passages", tiny, passages=20) as index,
        pytest.raises(InputError, match="divides documents into passages"),
    ):
        transfer.open_or_create(new_url("qdrant"), index, {})


@pytest.mark.parametrize("engine", ENGINES)
def test_the_commands(
    tiny: Any,
    tmp_path: Path,
    new_url: NEW_URL,
    engine: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["hplus", *words])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    for command in ("push", "pull", "diff"):
        assert f"Example: hplus {command} " in run(command, "--help")[1]
    model, notes, url = tmp_path / "model", str(tmp_path / "notes.hplus"), new_url(engine)
    tiny.save(model, include_encoder=True)
    rows = ["insulin therapy for type 2 diabetes", "chronic kidney disease and heart failure"]
    (tmp_path / "notes.jsonl").write_text(
        "".join(
            json.dumps({"_id": "ab"[i], "text": row, "n": i}) + "\n" for i, row in enumerate(rows)
        )
    )
    assert run("index", str(tmp_path / "notes.jsonl"), notes, "--model", str(model))[0] == 0
    code, out, _ = run("push", notes, url)
    assert (code, "2 sent, 0 there already; 2 documents" in out) == (0, True)
    code, out, _ = run("push", notes, url, "--json")
    assert json.loads(out) | {"collection": ""} == {
        "collection": "", "documents": 2, "moved": 0, "unchanged": 2, "deleted": 0,
    }  # fmt: skip
    assert run("diff", notes, url)[:2] == (0, "2 documents are the same\n")
    code, out, _ = run("search", url, "heart failure", "--model", str(model), "-k", "1", "--json")
    assert [hit["id"] for hit in json.loads(out)["hits"]] == ["b"]
    code, out, _ = run("more-like", url, "a", "--model", str(model), "--json")
    assert [hit["id"] for hit in json.loads(out)["hits"]] == ["b"]
    code, out, _ = run("get", url, "a", "--json")
    assert json.loads(out) == {"id": "a", "text": rows[0], "metadata": {"n": 0}}
    shards, other = str(tmp_path / "shards"), new_url(engine)
    assert run("bulk", str(tmp_path / "notes.jsonl"), shards, "--model", str(model))[0] == 0
    code, out, err = run("push", shards, other, "--encoded")
    assert (code, "2 sent, 0 there already; 2 documents" in out) == (0, True), err
    assert "0 sent, 2 there already" in run("push", shards, other, "--encoded")[1]
    terms, named, third = tmp_path / "terms.txt", str(tmp_path / "named"), new_url(engine)
    terms.write_text("heart failure\n")
    own = ("--model", str(model), "--terms", str(terms))
    assert run("bulk", str(tmp_path / "notes.jsonl"), named, *own)[0] == 0
    code, _, err = run("push", named, third, "--encoded", "--model", str(model))
    assert (code, "the terms it was encoded with" in err) == (2, True)
    assert run("push", named, third, "--encoded", *own)[0] == 0
    with Index.connect(third) as there:
        assert there.terms == ["heart failure"]
    code, _, err = run("push", notes, third, "--terms", str(terms))
    assert (code, "an index knows its own" in err) == (2, True)
    # What came from shards is what an index of them holds.
    assert run("index", "--encoded", shards, str(tmp_path / "same.hplus"))[0] == 0
    assert run("diff", str(tmp_path / "same.hplus"), other)[:2] == (0, "2 documents are the same\n")
    assert run("verify", other)[0] == run("verify", url)[0] == 0
    assert json.loads(run("stats", url, "--json")[1])["documents"] == 2
    assert run("pull", url, str(tmp_path / "copy.hplus"))[0] == 0
    assert run("delete", str(tmp_path / "copy.hplus"), "a")[0] == 0
    code, out, _ = run("diff", str(tmp_path / "copy.hplus"), url)
    assert code == 1
    assert out.splitlines()[-1] == "1 documents are the same"
    none = new_url(engine)
    code, _, err = run("diff", notes, none)
    assert (code, "does not exist; hplus push INDEX " in err) == (2, True)
    for words in (
        ("index", str(tmp_path / "notes.jsonl"), none),
        ("export", url, str(tmp_path / "out.jsonl")),
        ("compact", url),
        ("push", url, none),
    ):
        code, _, err = run(*words)
        assert (code, "expected the folder of an index, got an address" in err) == (2, True), words
    code, out, err = run("search", url, "heart", "--model", str(model), "--where", "m = 1")
    assert (code, "no document has a field m; known fields: n" in out + err) == (1, True)
    assert run("delete", url, "a", "z")[0] == 1
    assert "1 deleted" in run("delete", url, "--where", "n = 1", "--yes")[1]
    assert json.loads(run("stats", url, "--json")[1])["documents"] == 0
