"""Checkpoints and indexes that somebody else prepared: one clear error each, in bounded time."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hplus import HPlus, Index
from hplus.backbones import load as load_module
from hplus.backbones import tokenizer as tokenizer_module
from hplus.errors import (
    BackboneError,
    CheckpointError,
    HPlusError,
    IndexDamagedError,
    ModelMismatchError,
)
from hplus.storage.snapshot import OWN
from tiny import write_tiny

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "encoder")


@pytest.fixture
def saved(tmp_path: Path, encoder: Path) -> Path:
    """A checkpoint that carries its encoder."""
    HPlus(encoder, units="words").fit_idf(["kidney"]).save(tmp_path / "m", include_encoder=True)
    return tmp_path / "m"


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"format": {DEEP}}}', "nested too deeply"),
        (f'{{"format": 1, "notes": "{"x" * 5_000_000}"}}', "more than 4 MB"),
        ("[]", "expected an object"),
        ('{"format": 1' + "0" * 5000 + "}", "not JSON"),
        ("\xff", "not JSON"),
    ],
    ids=["deep", "huge", "list", "number", "bytes"],
)
@pytest.mark.parametrize("file", ["config.json", "encoder/config.json"])
def test_odd_json(saved: Path, file: str, text: str, said: str) -> None:
    (saved / file).write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=said):
        HPlus((saved / file).parent)


@pytest.mark.parametrize(
    "name",
    ["config.json", "idf.safetensors", "encoder/tokenizer.json", "encoder/model.safetensors",
     "encoder/config.json"],
)  # fmt: skip
def test_a_pipe_in_a_checkpoint_does_not_wait(saved: Path, name: str) -> None:
    (saved / name).unlink()
    os.mkfifo(saved / name)
    with pytest.raises(HPlusError, match="not a regular file; expected one, got a pipe"):
        HPlus(saved)


@pytest.mark.parametrize("name", ["1_Pooling/config.json", "config_sentence_transformers.json"])
def test_a_pipe_beside_an_encoder_does_not_wait(encoder: Path, name: str) -> None:
    (encoder / name).parent.mkdir(exist_ok=True)
    os.mkfifo(encoder / name)
    with pytest.raises(BackboneError, match="not a regular file"):
        HPlus(encoder)


@pytest.mark.parametrize("path", ["../elsewhere", "encoder/../../elsewhere", "a\0b", 5, "x" * 5000])
def test_paths_that_leave_the_folder(saved: Path, path: object) -> None:
    config = json.loads((saved / "config.json").read_text())
    change(saved, backbone=config["backbone"] | {"path": path})
    with pytest.raises(CheckpointError):
        HPlus(saved)


def test_a_link_that_leaves_the_folder(saved: Path) -> None:
    shutil.move(saved / "encoder", saved.parent / "elsewhere")
    (saved / "encoder").symlink_to(saved.parent / "elsewhere")
    with pytest.raises(CheckpointError, match=r"inside .* leads to .*elsewhere"):
        HPlus(saved)


def test_an_encoder_elsewhere_is_found_or_named(tmp_path: Path, encoder: Path) -> None:
    HPlus(encoder, units="words").save(tmp_path / "m")
    assert str(encoder) in str(HPlus(tmp_path / "m"))  # what it refers to is said
    shutil.rmtree(encoder)
    with pytest.raises(CheckpointError, match=r"is not on this machine; .*include_encoder=True"):
        HPlus(tmp_path / "m")


@pytest.mark.parametrize("share", ["//host/share", "\\\\host\\share"])
def test_a_folder_of_another_machine(saved: Path, share: str) -> None:
    config = json.loads((saved / "config.json").read_text())
    change(saved, backbone=config["backbone"] | {"path": share})
    with pytest.raises(CheckpointError, match="on this machine"):
        HPlus(saved)


def replaced(spec: dict[str, Any], count: int) -> None:
    one = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    spec["normalizer"] = {"type": "Sequence", "normalizers": [one] * count}


def expression(spec: dict[str, Any]) -> None:
    content = {"type": "Replace", "pattern": {"Regex": ""}, "content": "b" * 100}
    spec["normalizer"] = content


def precompiled(spec: dict[str, Any], data: bytes) -> None:
    spec["normalizer"] = {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(data).decode(),
    }


def truncation(spec: dict[str, Any]) -> None:
    spec["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
                          "stride": 5}  # fmt: skip


def backtracking(spec: dict[str, Any]) -> None:
    spec["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a+)+$"},
                             "behavior": "Isolated", "invert": False}  # fmt: skip


def long_words(spec: dict[str, Any]) -> None:
    spec["model"]["max_input_chars_per_word"] = 10**9


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda spec: replaced(spec, 40), "1,099,511,627,776 times as long"),
        (expression, "101 times as long"),
        (lambda spec: precompiled(spec, b"\0\0\0\0" + b"x" * 1000), "1,000 times as long"),
        (lambda spec: precompiled(spec, b"\xff\xff\xff\xff"), "not a tokenizer file"),
        (long_words, "words of up to 1,000,000,000 characters"),
        (lambda spec: spec.update(model=None), "not a tokenizer file"),
    ],
    ids=["doubling", "expression", "charsmap", "panic", "words", "model"],
)
def test_tokenizers_that_explode_or_panic(
    encoder: Path, make: Callable[[dict[str, Any]], None], said: str
) -> None:
    path = encoder / "tokenizer.json"
    spec = json.loads(path.read_text())
    make(spec)
    path.write_text(json.dumps(spec))
    with pytest.raises(BackboneError, match=said):
        HPlus(encoder)


def test_a_tokenizer_that_panics_on_a_text(encoder: Path) -> None:
    path = encoder / "tokenizer.json"
    spec = json.loads(path.read_text())
    backtracking(spec)
    path.write_text(json.dumps(spec))
    model = HPlus(encoder)
    with pytest.raises(BackboneError, match=r"tokenizer fails on a text: .*retry-limit"):
        model.segment("a" * 60 + "!")


def test_what_may_truncate_is_turned_off(encoder: Path) -> None:
    path = encoder / "tokenizer.json"
    spec = json.loads(path.read_text())
    truncation(spec)
    replaced(spec, 2)  # four times as long is not an attack
    path.write_text(json.dumps(spec))
    assert HPlus(encoder).segment("a kidney")


def test_a_huge_tokenizer_is_not_read(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "MOST_BYTES", 100)
    with pytest.raises(BackboneError, match="more than 100 bytes"):
        HPlus(encoder)


# ---- indexes


@pytest.fixture
def index(tmp_path: Path, encoder: Path) -> Path:
    with Index.create(tmp_path / "i.hplus", HPlus(encoder, units="words")) as made:
        made.add([("a", "kidney failure"), ("b", "heart failure")])
    return tmp_path / "i.hplus"


def attempts(index: Path, encoder: Path) -> list[Callable[[], object]]:
    """Everything one may do with an index."""
    model = HPlus(encoder, units="words")
    return [
        lambda: Index.open(index).close(),
        lambda: Index.open(index, model=model).add([("c", "cell")]),
        lambda: Index.open(index).compact(),
        lambda: Index.open(index).verify(),
        lambda: Index.create(index, model),
    ]


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_in_an_index(index: Path, encoder: Path, name: str, kind: str) -> None:
    stranger = index.parent / "stranger"
    if name == "segments":
        shutil.move(index / name, stranger)
        (stranger / "letter.txt").write_text("not yours")
    else:
        stranger.write_bytes((index / name).read_bytes() if (index / name).exists() else b"mine")
        (index / name).unlink(missing_ok=True)
    before = {p: p.read_bytes() for p in (stranger, *stranger.rglob("*")) if p.is_file()}
    if kind == "link":
        (index / name).symlink_to(stranger)
    else:
        os.mkfifo(index / name)
    for attempt in attempts(index, encoder):
        with pytest.raises(IndexDamagedError, match="a link, a pipe or a device"):
            attempt()
    assert {p: p.read_bytes() for p in (stranger, *stranger.rglob("*")) if p.is_file()} == before


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_among_the_segments(index: Path, encoder: Path, kind: str) -> None:
    (file,) = (index / "segments").iterdir()
    shutil.move(file, index.parent / "stranger")
    if kind == "link":
        file.symlink_to(index.parent / "stranger")
    else:
        os.mkfifo(file)
    for attempt in attempts(index, encoder):
        with pytest.raises(IndexDamagedError, match="a link, a pipe or a device"):
            attempt()


def test_an_index_behind_a_link_is_an_index(index: Path, tmp_path: Path) -> None:
    (tmp_path / "shortcut").symlink_to(index)
    assert len(Index.open(tmp_path / "shortcut")) == 2


# ---- the network


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """Every attempt to reach somebody, and an empty cache of the hub."""
    tried: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
        tried.append(arguments)
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    constants = pytest.importorskip("huggingface_hub.constants")
    pytest.importorskip("transformers")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tried


def name_model(index: Path, name: str) -> None:
    with sqlite3.connect(index / "catalogue.sqlite") as catalogue:
        catalogue.execute("UPDATE settings SET value = ? WHERE name = 'model'", (json.dumps(name),))
    catalogue.close()


def test_an_index_that_names_a_hub_id(index: Path, no_network: list[object]) -> None:
    name_model(index, "somebody/evil-model")
    with (
        Index.open(index) as opened,
        pytest.raises(ModelMismatchError, match=r"nothing is fetched unless you say so.*--model"),
    ):
        opened.search("kidney")
    assert no_network == []


def test_a_model_beside_an_index_that_names_a_hub_id(
    index: Path, saved: Path, no_network: list[object]
) -> None:
    change(saved, backbone={"kind": "transformers", "hub": "somebody/evil-model"})
    name_model(index, "m")
    with (
        Index.open(index) as opened,
        pytest.raises(CheckpointError, match="hf download somebody/evil-model"),
    ):
        opened.search("kidney")
    with pytest.raises(CheckpointError, match="hf download somebody/evil-model"):
        HPlus(saved)
    assert no_network == []


def test_what_the_user_names_may_be_fetched(no_network: list[object]) -> None:
    with pytest.raises(BackboneError, match="not available on the hub"):
        HPlus("somebody/model")
    assert no_network
    no_network.clear()
    with pytest.raises(BackboneError, match="nothing is fetched"):
        HPlus("somebody/model", offline=True)
    assert no_network == []


def test_a_hub_id_in_the_cache_needs_no_network(
    encoder: Path, tmp_path: Path, no_network: list[object]
) -> None:
    pytest.importorskip("torch")
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "cache" / "models--somebody--model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    (cached / "snapshots").mkdir()
    encoder.rename(cached / "snapshots" / commit)
    model = HPlus("somebody/model", offline=True)
    assert model.checkpoint.backbone.reference["commit"] == commit
    with Index.create(tmp_path / "hub.hplus", model) as index:
        index.add([("a", "kidney")])
    with Index.open(tmp_path / "hub.hplus") as index:
        assert index.search("kidney")[0].id == "a"
    model.save(tmp_path / "from-hub")
    assert HPlus(tmp_path / "from-hub").fingerprint == model.fingerprint
    assert no_network == []


@pytest.mark.parametrize("hub", ["../x", "https://x/y", "", None, 5])
def test_a_hub_id_is_spelled_like_one(saved: Path, hub: object) -> None:
    change(saved, backbone={"kind": "transformers", "hub": hub})
    with pytest.raises(CheckpointError):
        HPlus(saved)
    assert load_module.HUB_ID.fullmatch("owner/name")
