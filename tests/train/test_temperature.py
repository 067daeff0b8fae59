"""tau = 0: measured on the first batches, against numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus.errors import InputError  # noqa: E402
from hplus.teach.groups import Group  # noqa: E402
from hplus.train.config import Config, read_config  # noqa: E402
from hplus.train.data import Batches  # noqa: E402
from hplus.train.distributed import World  # noqa: E402
from hplus.train.objective import side_of  # noqa: E402
from hplus.train.passes import Reader  # noqa: E402
from hplus.train.run import precision  # noqa: E402
from hplus.train.student import make_student  # noqa: E402
from hplus.train.temperature import BATCHES, measured, with_taus  # noqa: E402

SETTINGS = """
[student]
heads = []
[data]
documents = 3
[batch]
queries = 4
[schedule]
steps = 3
precision = "float32"
[loss.global]
weight = 0.5
tau = 0
widths = [8, 32]
[loss.token]
weight = 1.0
tau = 0.3
"""


def settings(path: Path, *changes: str) -> Config:
    (path / "config.toml").write_text(SETTINGS)
    return read_config(path / "config.toml", changes)


def measure(path: Path, config: Config, groups: list[Group], stage: int = 2) -> Any:
    torch.manual_seed(0)
    base = toy.base(toy.encoder(path / "encoder"))
    student = make_student(base, config, stage)
    data = toy.data(groups, base, config, path)
    exact = precision(config, torch.device("cpu"))
    readers = [Reader(student, texts, None, 64, exact) for texts in (data.queries, data.documents)]
    batches = Batches(data, config, stage=stage)
    taus = measured(student, data, config, stage, batches, readers, World())
    return taus, student, data, batches


@pytest.mark.parametrize("min_max", [False, True])
def test_it_is_the_spread_of_the_scores_over_that_of_the_logits(
    tmp_path: Path, min_max: bool
) -> None:
    config = settings(tmp_path, f"loss.global.min_max={str(min_max).lower()}")
    # One group has two documents instead of three, another no teacher.
    groups = toy.groups(13)
    groups[3] = replace(groups[3], documents=groups[3].documents[:2], scores=(2.0, 0.5))
    groups[5] = replace(groups[5], scores=None)
    taus, student, data, batches = measure(tmp_path, config, groups)
    own, taught = [], []
    for step in range(BATCHES):
        batch = batches.at(step)
        with torch.no_grad():
            sides = [
                side_of(student, texts.take(rows), *student(texts.take(rows))).pooled.numpy()
                for texts, rows in (
                    (data.queries, batch.queries),
                    (data.documents, batch.documents),
                )
            ]
        for width in (8, 32):
            q, d = (x[:, :width] / np.linalg.norm(x[:, :width], axis=1)[:, None] for x in sides)
            scores, logits = [], []
            for row, group, t in zip(q, batch.group, batch.teacher, strict=True):
                if np.isfinite(t[0]):
                    found = d[group[group >= 0]] @ row
                    scores.append(np.std(found) / (np.ptp(found) if min_max else 1))
                    logits.append(np.std(t[group >= 0]))
            own.append(np.mean(scores))
            taught.append(np.mean(logits))
    assert taus == {"global": pytest.approx(np.mean(own) / np.mean(taught), rel=1e-5)}
    changed = with_taus(config, taus).loss
    assert (changed.global_.tau, changed.token.tau) == (taus["global"], 0.3)


def test_without_a_teacher_there_is_nothing_to_measure_by(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with pytest.raises(InputError, match="stage 1 has no teacher"):
        measure(tmp_path, config, toy.groups(), stage=1)
    unscored = [replace(group, scores=None) for group in toy.groups()]
    with pytest.raises(InputError, match=r"logits spread by 0 .* score the groups"):
        measure(tmp_path, config, unscored)
    assert measure(tmp_path, settings(tmp_path, "loss.global.tau=0.1"), unscored)[0] == {}
