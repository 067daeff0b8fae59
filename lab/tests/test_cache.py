"""Files under the hash of what they were made from: made once, never mistaken, damage reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hplus import InputError
from hplus_lab.cache import array_made_once, hash_of, write


def test_arrays_are_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def array(*parts: np.ndarray | str) -> np.ndarray:
        def make() -> np.ndarray:
            made.append(1)
            return np.arange(6, dtype=np.float32).reshape(2, 3)

        return array_made_once(tmp_path / "scores", parts, make)

    one = np.array([1, 2, 3])
    for _ in range(2):
        np.testing.assert_array_equal(array(one, "x"), [[0, 1, 2], [3, 4, 5]])
    assert len(made) == 1
    for parts in ((one[:2], "x"), (one, "y"), (one.astype(np.int32), "x"), (one,)):
        array(*parts)
    assert len(made) == 5
    assert len(list((tmp_path / "scores").iterdir())) == 5


def test_parts_do_not_run_into_one_another() -> None:
    assert hash_of(["ab", "c"]) != hash_of(["a", "bc"])
    assert hash_of([np.array([1, 2]), np.array([3])]) != hash_of([np.array([1]), np.array([2, 3])])
    assert hash_of([b"ab"]) == hash_of(["ab"])


@pytest.mark.parametrize("damage", ["flip", "empty"])
def test_damage_is_reported(tmp_path: Path, damage: str) -> None:
    array_made_once(tmp_path, ["x"], lambda: np.ones(9, np.float32))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content if damage == "flip" else b"")
    with pytest.raises(InputError, match="is damaged"):
        array_made_once(tmp_path, ["x"], lambda: np.ones(9, np.float32))


def test_a_file_that_is_there_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file.json"
    write(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="full"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
