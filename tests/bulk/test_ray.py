"""Ray Data actors write the bytes that one process writes, also if one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from hplus import HPlus, MissingExtraError, ServiceError, texts
from hplus.bulk.encode import encode_shards
from hplus.bulk.folder import read_manifest
from hplus.bulk.job import Job, job_of
from shards import shard_bytes, write_rows

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: pip install hplus[ray] runs these tests"
)
# In a process of its own: Ray starts threads, handles signals and warns. A thread kills the first
# actor as soon as a shard is there.
PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
import psutil
from hplus import HPlus
from hplus.bulk.job import Job
from hplus.bulk.ray_ import encode_with_ray
import json

def kill_an_actor(folder):
    while not list(folder.glob("[!.]*")):
        time.sleep(0.02)
    for process in psutil.Process().children(recursive=True):
        if "EncodeShards" in " ".join(process.cmdline()[:1]):
            process.kill()
            print("killed", len(list(folder.glob("[!.]*"))), flush=True)
            return

if __name__ == "__main__":
    source, folder, model, job, kill = sys.argv[1:]
    if kill == "kill":
        threading.Thread(target=kill_an_actor, args=(Path(folder),), daemon=True).start()
    model = HPlus(model)
    found = encode_with_ray(model, Job.of_json(json.loads(job)), source, folder, actors=2)
    print("missing", found.missing)
"""


def by_ray(source: Path, folder: Path, model: Path, job: Job, *, kill: bool) -> list[str]:
    """What the program prints; Ray itself prints that an actor died."""
    arguments = [source, folder, model, json.dumps(job.as_json()), "kill" if kill else "no"]
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = program.communicate(timeout=900)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
    if "timed out during startup" in err:
        pytest.skip("Ray gives itself 30 seconds to start, and this machine is too busy for that")
    assert program.returncode == 0, err
    return [line for line in out.splitlines() if line.startswith(("killed", "missing"))]


def corpus_of(path: Path, documents: int) -> Path:
    rows = (
        {"_id": f"d{i}", "text": f"type {i} diabetes of patient {i * 7919}; " * (1 + i % 3)}
        for i in range(documents)
    )
    return write_rows(path, list(rows))


def check_two_actors(tmp_path: Path, tiny_folder: Path, documents: int, shards: int) -> None:
    """One process, two actors, two actors of which one is killed half-way."""
    corpus = corpus_of(tmp_path / "corpus.jsonl", documents)
    model = HPlus(tiny_folder)
    job = job_of(model, corpus, shards=shards)
    encode_shards(model, job, corpus, tmp_path / "one")
    expected = shard_bytes(tmp_path / "one")
    assert by_ray(corpus, tmp_path / "two", tiny_folder, job, kill=False) == ["missing ()"]
    assert shard_bytes(tmp_path / "two") == expected
    killed, missing = by_ray(corpus, tmp_path / "killed", tiny_folder, job, kill=True)
    done = int(killed.removeprefix("killed "))
    assert (0 < done < shards, missing) == (True, "missing ()")
    assert shard_bytes(tmp_path / "killed") == expected


@needs_ray
def test_an_actor_takes_what_the_folder_lacks(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class itself, without a cluster."""
    import numpy as np

    from hplus.bulk.ray_ import EncodeShards
    from hplus.workers import blueprint_of

    monkeypatch.setattr(texts, "STEP_TEXTS", 2)
    model = HPlus(tiny_folder)
    corpus = corpus_of(tmp_path / "corpus.jsonl", 23)
    job = job_of(model, corpus, shards=5)
    encode_shards(model, job, corpus, tmp_path / "one")
    encode_shards(model, job, corpus, tmp_path / "two", only=[1, 4])
    actor = EncodeShards(blueprint_of(model, threads=1), job, str(corpus), str(tmp_path / "two"))
    for shard in (1, 2, 3, 5, 4):
        assert actor({"shard": np.array([shard])}) == {"shard": [shard], "error": [""]}
    assert actor.model is not None
    assert actor.model.threads == 1
    assert shard_bytes(tmp_path / "two") == shard_bytes(tmp_path / "one")


@needs_ray
def test_an_actor_answers_with_one_sentence(tmp_path: Path, tiny_folder: Path) -> None:
    """A row that is bad, a model that is not there on its machine: Ray would wrap an exception."""
    import numpy as np

    from hplus.bulk.ray_ import EncodeShards
    from hplus.workers import blueprint_of

    model = HPlus(tiny_folder)
    corpus = corpus_of(tmp_path / "corpus.jsonl", 3)
    corpus.write_text(corpus.read_text() + '{"_id": "d1", "text": "again"}')
    job = job_of(model, corpus, shards=2)
    blueprint = blueprint_of(model, threads=1)
    elsewhere = replace(blueprint, source=str(tmp_path / "nowhere"))
    for built, sentence in (
        (blueprint, "corpus.jsonl:4: the id 'd1' repeats"),
        (elsewhere, "nowhere"),
    ):
        actor = EncodeShards(built, job, str(corpus), str(tmp_path))
        (found,) = actor({"shard": np.array([2])})["error"]
        assert sentence in found


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999999"])
def test_a_cluster_that_is_not_there(tmp_path: Path, tiny: HPlus, address: str) -> None:
    from hplus.bulk.ray_ import encode_with_ray

    corpus = corpus_of(tmp_path / "corpus.jsonl", 3)
    with pytest.raises(ServiceError, match=f"no Ray cluster at {address}: "):
        encode_with_ray(tiny, job_of(tiny, corpus), corpus, tmp_path / "folder", address=address)


@needs_ray
@pytest.mark.slow
def test_twenty_thousand_documents_by_two_actors(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the actors have steps of the usual size
    check_two_actors(tmp_path, tiny_folder, 20_000, 40)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_extra_is_named(tmp_path: Path, tiny: HPlus) -> None:
    from hplus.bulk.ray_ import encode_with_ray

    corpus = corpus_of(tmp_path / "corpus.jsonl", 3)
    with pytest.raises(MissingExtraError, match=r"pip install hplus\[ray\]"):
        encode_with_ray(tiny, job_of(tiny, corpus), corpus, tmp_path / "folder")


@needs_ray
def test_what_is_complete_starts_no_cluster(
    tmp_path: Path, tiny: HPlus, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
    from hplus.bulk.ray_ import encode_with_ray

    corpus = corpus_of(tmp_path / "corpus.jsonl", 3)
    job = job_of(tiny, corpus)
    encode_shards(tiny, job, corpus, tmp_path / "folder")
    monkeypatch.setattr(ray, "init", None)
    found = encode_with_ray(tiny, job, corpus, tmp_path / "folder")
    assert found == read_manifest(tmp_path / "folder")
