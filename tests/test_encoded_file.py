"""Encodings on disk: whole round trips, and a damaged file is an error that names it."""

from __future__ import annotations

import io
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import assert_same, random_encoded
from hplus import files
from hplus.encoded_file import FORMAT, read_encoded, write_encoded
from hplus.errors import InputError
from hplus.types import Encoded

SUFFIXES = [".npz", ".safetensors"]


def sample() -> Encoded:
    return random_encoded(np.random.default_rng(0), [3, 0, 2], dropped=[1, 0, 2], merged=True)


def arrays_of(path: Path) -> dict[str, Any]:
    if path.suffix == ".npz":
        with np.load(path) as file:
            return dict(file)
    return dict(safetensors.numpy.load_file(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=25)
@given(lengths=st.lists(st.integers(0, 4), max_size=4), seed=st.integers(0, 2**32 - 1))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, lengths: list[int], seed: int
) -> None:
    path = tmp_path_factory.mktemp("round") / f"encoded{suffix}"
    encoded = random_encoded(np.random.default_rng(seed), lengths, dropped=lengths, merged=True)
    write_encoded(path, encoded, fingerprint=f"model-{seed}")
    again, fingerprint = read_encoded(path)
    assert_same(again, encoded)
    assert fingerprint == f"model-{seed}"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_slices_and_strings_as_paths(tmp_path: Path, suffix: str) -> None:
    """A narrowed or sliced encoding is not contiguous in memory; on disk it is."""
    path = str(tmp_path / f"x{suffix}")
    encoded = sample()[1:].at(width=3, budget=1)
    write_encoded(path, encoded, fingerprint="é ½")
    again, fingerprint = read_encoded(path)
    assert_same(again, encoded)
    assert fingerprint == "é ½"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_arrays_are_plain(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    write_encoded(path, sample(), fingerprint="f")
    arrays = arrays_of(path)
    assert {"vectors", "offsets", "coverage_kept"} <= set(arrays)
    np.testing.assert_array_equal(arrays["vectors"], sample().units.vectors)
    assert not any(array.dtype.hasobject for array in arrays.values())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_truncated_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cut{suffix}"
    write_encoded(path, sample(), fingerprint="f")
    whole = path.read_bytes()
    cuts = {*range(0, len(whole), 97), *range(1, 12), *range(len(whole) - 30, len(whole))}
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=f"cut{suffix} is not a valid encoding"):
            read_encoded(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"\0" * 200, b"PK\x03\x04" + b"x" * 100, pickle.dumps({"vectors": [1]})],
)
def test_garbage_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"bad{suffix} is not a valid encoding"):
        read_encoded(path)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_in_an_npz_gives_our_error_or_the_same_encoding(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    """The archive's checksums cover every array; flips elsewhere may not matter."""
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    write_encoded(path, sample(), fingerprint="f")
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= flip
    path.write_bytes(content)
    again = sample()
    with suppress(InputError):  # nothing else may be raised
        again, _ = read_encoded(path)
    assert_same(again, sample())


class Touch:
    """Pickled, it would create a file on loading."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_pickle_inside_is_refused_and_never_run(tmp_path: Path) -> None:
    path, trap = tmp_path / "pickled.npz", tmp_path / "trap"
    write_encoded(path, sample(), fingerprint="f")
    arrays = arrays_of(path)
    hidden = np.empty(1, object)
    hidden[0] = Touch(trap)
    arrays["vectors"] = hidden
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=r"pickled.npz is not a valid encoding"):
        read_encoded(path)
    bare = tmp_path / "bare.npz"
    bare.write_bytes(pickle.dumps(Touch(trap)))
    with pytest.raises(InputError, match=r"bare.npz is not a valid encoding"):
        read_encoded(bare)
    assert not trap.exists()


@pytest.mark.parametrize("change", ["format", "fingerprint", "weights", "coverage_cut"])
def test_a_missing_array_is_an_error(tmp_path: Path, change: str) -> None:
    path = tmp_path / "less.npz"
    write_encoded(path, sample(), fingerprint="f")
    arrays = arrays_of(path)
    del arrays[change]
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=f"less.npz is not a valid encoding.*{change}"):
        read_encoded(path)


def test_a_single_array_and_an_unknown_one_are_no_encoding(tmp_path: Path) -> None:
    single = io.BytesIO()
    np.save(single, np.zeros(3))
    (tmp_path / "one.npz").write_bytes(single.getvalue())
    with pytest.raises(InputError, match=r"one.npz is not a valid encoding"):
        read_encoded(tmp_path / "one.npz")
    path = tmp_path / "more.npz"
    write_encoded(path, sample(), fingerprint="f")
    np.savez(path, **arrays_of(path), surplus=np.zeros(1))
    with pytest.raises(InputError, match=r"more.npz is not a valid encoding.*surplus"):
        read_encoded(path)


def test_another_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.npz"
    write_encoded(path, sample(), fingerprint="f")
    np.savez(path, **{**arrays_of(path), "format": np.array("hplus-encoded-0")})
    with pytest.raises(
        InputError, match=f"old.npz has format 'hplus-encoded-0', expected '{FORMAT}'"
    ):
        read_encoded(path)
    foreign = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(2)}, foreign)
    with pytest.raises(InputError, match=r"foreign.safetensors is not a valid encoding"):
        read_encoded(foreign)


def test_a_missing_file_and_a_wrong_suffix(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        with pytest.raises(InputError, match=f"none{suffix} is missing"):
            read_encoded(tmp_path / f"none{suffix}")
    for name in ["x.npy", "x", "x.npz.gz"]:
        for act in (lambda p: write_encoded(p, sample(), fingerprint="f"), read_encoded):
            with pytest.raises(InputError, match=f"{name}: expected an .npz or .safetensors file"):
                act(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    path, new = tmp_path / f"old{suffix}", tmp_path / f"new{suffix}"
    write_encoded(path, sample(), fingerprint="before")

    def full(_: Path) -> NoReturn:
        raise OSError("no space left on device")

    monkeypatch.setattr(files, "sync", full)
    for target in (path, new):
        with pytest.raises(OSError, match="no space left"):
            write_encoded(target, sample()[:1], fingerprint="after")
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    again, fingerprint = read_encoded(path)
    assert_same(again, sample())
    assert fingerprint == "before"
