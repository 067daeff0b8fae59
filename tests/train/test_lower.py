"""States kept on disk: those of the layers themselves, and a key that never answers for another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus.train import lower  # noqa: E402
from hplus.train.config import StudentSettings  # noqa: E402
from hplus.train.lower import key, stored_layer  # noqa: E402
from hplus.train.student import Student, layers_of  # noqa: E402
from hplus.train.texts import Texts, read_texts  # noqa: E402

WRITTEN = ["heart failure", "the insulin therapy of a patient", "cancer", "chronic kidney disease"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.encoder(tmp_path_factory.mktemp("toy") / "encoder")


def student(folder: Path) -> Student:
    settings = StudentSettings(mode="top", layers=1, cached=True, heads=())
    return Student(toy.base(folder), settings, token=False)


def texts(made: Student, written: list[str]) -> Texts:
    return read_texts(written, made.backbone, made.checkpoint.recipe, "document", 32)


def test_the_key_has_everything_the_states_depend_on(folder: Path) -> None:
    made = student(folder)
    some = texts(made, WRITTEN)
    first = key(made, 2, some)
    assert key(student(folder), 2, texts(made, WRITTEN)) == first
    with torch.no_grad():
        layers_of(made.encoder)[2].output.dense.weight.add_(1)  # above the layer: no matter
    assert key(made, 2, some) == first

    one, two = np.split(some.tokens.ids, [1])
    swapped = replace(some.tokens, ids=np.concatenate([two, one]))
    offsets = some.tokens.offsets.copy()
    offsets[1] += 1  # the same ids, divided elsewhere
    others = [
        key(made, 1, some),
        key(made, 2, replace(some, tokens=swapped)),
        key(made, 2, replace(some, tokens=replace(some.tokens, offsets=offsets))),
        key(made, 2, replace(some, before=np.append(some.before, some.after))),
        key(made, 2, replace(some, after=np.append(some.after, some.after))),
    ]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        others.append(key(made, 2, some))
    for module in (made.encoder.embeddings, layers_of(made.encoder)[1]):
        with torch.no_grad():
            next(module.parameters()).view(-1)[0].add_(1)
        others.append(key(made, 2, some))
    assert len({first, *others}) == 1 + len(others)


def test_an_interrupted_pass_goes_on_where_it_stopped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text is encoded once, and the states are those of each text alone."""
    monkeypatch.setattr(lower, "STEP", 3)
    made = student(folder)
    written = [f"{a} {b}" for a in WRITTEN for b in ("dose", "cell of the heart")]
    some = texts(made, written)
    kept, read = Student.below, list[str]()

    def below(self: Student, own: Texts, count: int) -> Any:
        if len(read) >= 6:
            raise KeyboardInterrupt
        read.extend(own.tokens.texts)
        return kept(self, own, count)

    with monkeypatch.context() as patched:
        patched.setattr(Student, "below", below)
        with pytest.raises(KeyboardInterrupt):
            stored_layer(made, 2, some, tmp_path, chunk=20, what="texts")
    done, rest = read[:6], list[str]()

    def rest_below(self: Student, own: Texts, count: int) -> Any:
        rest.extend(own.tokens.texts)
        return kept(self, own, count)

    monkeypatch.setattr(Student, "below", rest_below)
    found = stored_layer(made, 2, some, tmp_path, chunk=20, what="texts")
    assert sorted(done + rest) == sorted(written)
    stored_layer(made, 2, some, tmp_path, chunk=20, what="texts")
    assert len(done + rest) == len(written)
    for row in range(len(written)):
        alone = np.array([row])
        with torch.no_grad():
            expected = kept(made, some.take(alone), 2)
        # Kept in half precision.
        torch.testing.assert_close(found.take(alone), expected, rtol=1e-3, atol=2e-3)
