"""The loop's own decisions: when to stop, what to keep, at which rate, what to resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import toy  # noqa: E402
from hplus.errors import InputError  # noqa: E402
from hplus.evaluate.data import RetrievalSet  # noqa: E402
from hplus.train import run, state  # noqa: E402
from hplus.train.config import Config, read_config  # noqa: E402
from hplus.train.distributed import World  # noqa: E402
from hplus.train.run import is_over, make_optimiser, train  # noqa: E402
from hplus.train.student import Student, make_student  # noqa: E402

SETTINGS = """
[student]
mode = "top"
layers = 1
heads = ["importance"]
[data]
documents = 3
[batch]
queries = 4
chunk = 64
[schedule]
steps = 8
learning_rate = 2e-3
head_learning_rate = 1e-2
weight_decay = 0.1
validate_every = 2
save_every = 3
precision = "float32"
[loss.units]
weight = 1.0
budgets = [2, 0]
widths = [16, 0]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return toy.encoder(tmp_path_factory.mktemp("toy") / "encoder")


def config(path: Path, *changes: str) -> Config:
    (path / "config.toml").write_text(SETTINGS)
    return read_config(path / "config.toml", changes)


def begin(folder: Path, settings: Config) -> tuple[Student, Any]:
    base = toy.base(folder)
    return make_student(base, settings, 2), toy.data(toy.groups(), base, settings, folder.parent)


def weights(student: Student) -> dict[str, Any]:
    return {name: p.detach().clone() for name, p in student.learning().items()}


@pytest.mark.parametrize(
    ("values", "patience", "over"),
    [
        ([], 1, False),
        ([5.0], 1, False),
        ([5.0, 4.0], 1, True),
        ([5.0, 5.0], 1, True),  # as good is not better
        ([5.0, 6.0], 1, False),
        ([5.0, 4.0], 2, False),
        ([5.0, 4.0, 3.0], 2, True),
        ([5.0, 4.0, 5.0], 2, True),
        ([5.0, 4.0, 6.0, 5.0], 2, False),
        ([5.0, 4.0, 3.0, 2.0], 0, False),
    ],
)
def test_it_is_over_when_nothing_gets_better(
    values: list[float], patience: int, over: bool
) -> None:
    """By the metric that decides, whatever the others do."""
    rows = [{"step": i, "tokens": value, "phrase": 10.0 * i} for i, value in enumerate(values)]
    assert is_over(state.History({}, validations=rows), patience, "tokens") is over


def test_a_run_stops_early(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(tmp_path, "schedule.patience=2", "dev.by=tokens")
    values = iter([30.0, 40.0, 35.0, 40.0])
    monkeypatch.setattr(run, "dev_sets", lambda _: [("toy", pool())])
    monkeypatch.setattr(run, "validate", lambda *_: {"phrase": 1.0, "tokens": next(values)})
    student, data = begin(folder, settings)
    history = train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)
    assert history.step == 6
    best = state.read_weights(state.best_file(tmp_path / "run", 2))
    assert all(torch.equal(own, best[name]) for name, own in weights(student).items())


def pool() -> RetrievalSet:
    return RetrievalSet(["d"], ["heart failure"], ["q"], ["heart"], {"q": {"d": 1}})


@pytest.mark.parametrize("stop", [1, 4, 5, 8])
def test_validations_survive_a_kill(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """Which weights are the best, and when to stop, is decided by all validations of the run."""
    settings = config(tmp_path, "schedule.average=2", "schedule.patience=3")
    values = {0: 30.0, 2: 50.0, 4: 52.0, 6: 40.0, 8: 41.0}
    kept = run.Log.write

    def trained(place: str, at: int | None = None) -> tuple[dict[str, Any], list[float]]:
        student, data = begin(folder, settings)
        now = [0]

        def write(self: Any, row: dict[str, float]) -> None:
            if "loss" in row:
                now[0] = int(row["step"])
                if now[0] == at:
                    raise KeyboardInterrupt
            kept(self, row)

        def validate(*_: Any) -> dict[str, float]:
            return {"phrase": values[now[0]]}

        monkeypatch.setattr(run.Log, "write", write)
        monkeypatch.setattr(run, "validate", validate)
        out = tmp_path / place
        history = train(student, data, settings, stage=2, folder=out, cache=tmp_path)
        return weights(student), [row["phrase"] for row in history.validations]

    monkeypatch.setattr(run, "dev_sets", lambda _: [("toy", pool())])
    whole, curve = trained("whole")
    with pytest.raises(KeyboardInterrupt):
        trained("killed", stop)
    again, resumed = trained("killed")
    assert resumed == curve
    assert all(torch.equal(again[name], own) for name, own in whole.items())
    trained("killed")  # the run is over: the mean of the best is measured again, and noted once
    assert (tmp_path / "killed" / "log.jsonl").read_text().count("averaged") == 1


@pytest.mark.parametrize("other", [{"digest": "b"}, {"stage": 1}])
def test_a_run_goes_on_with_its_own_data_and_stage_only(
    folder: Path, tmp_path: Path, other: dict[str, Any]
) -> None:
    settings = config(
        tmp_path, "schedule.steps=2", "student.heads=[]", "loss.global.weight=1", "data.documents=1"
    )
    own = {"stage": 2, "digest": "a"}
    student, data = begin(folder, settings)
    train(student, data, settings, folder=tmp_path / "run", cache=tmp_path, **own)  # type: ignore[arg-type]
    student, data = begin(folder, settings)
    what = "data was a, is b" if "digest" in other else "stage was 2, is 1"
    with pytest.raises(InputError, match=rf"other settings \({what}\)"):
        train(student, data, settings, folder=tmp_path / "run", cache=tmp_path, **{**own, **other})
    with pytest.raises(InputError, match=r"other settings \(processes was 1, is 2\)"):
        train(
            student,
            data,
            settings,
            folder=tmp_path / "run",
            cache=tmp_path,
            world=World(0, 2),
            **own,  # type: ignore[arg-type]
        )


def test_the_loop_caches_gradients_where_it_is_told_to(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(place: str, *changes: str) -> dict[str, Any]:
        settings = config(tmp_path, "schedule.steps=1", *changes)
        student, data = begin(folder, settings)
        train(student, data, settings, stage=2, folder=tmp_path / place, cache=tmp_path)
        return weights(student)

    plain = trained("plain")
    monkeypatch.setattr(run, "backward", None)
    for name, own in trained("cached", "batch.gradient_cache=true").items():
        torch.testing.assert_close(own, plain[name], rtol=1e-3, atol=1e-4, msg=name)


def test_rates_and_decay_by_kind_of_parameter(folder: Path, tmp_path: Path) -> None:
    student, _ = begin(folder, settings := config(tmp_path))
    learning = student.learning()
    found = {
        name: (group["full"], group["weight_decay"])
        for group in make_optimiser(learning, settings).param_groups
        for name, parameter in learning.items()
        if any(parameter is own for own in group["params"])
    }
    assert found.keys() == learning.keys()
    for name, pair in found.items():
        matrix = learning[name].ndim > 1
        assert pair == (2e-3 if name.startswith("encoder.") else 1e-2, 0.1 if matrix else 0.0), name
    assert set(found.values()) == {(2e-3, 0.1), (2e-3, 0.0), (1e-2, 0.1), (1e-2, 0.0)}


def test_the_rate_follows_the_schedule(folder: Path, tmp_path: Path) -> None:
    settings = config(tmp_path, "schedule.warmup=0.25")
    student, data = begin(folder, settings)
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)
    rows = [json.loads(row) for row in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    done = [step / 6 for step in range(6)]
    shares = [0.5, 1.0, *(0.1 + 0.45 * (1 + math.cos(math.pi * share)) for share in done)]
    assert [row["rate"] for row in rows] == pytest.approx([2e-3 * share for share in shares])


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_number_that_is_none_stops_the_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Either of the two alone; the weights are as they were."""
    settings = config(tmp_path)
    student, data = begin(folder, settings)
    before = weights(student)
    if what == "gradient":
        parameter = next(iter(student.learning().values()))
        parameter.register_hook(lambda gradient: gradient * torch.inf)
    else:
        kept = run.Objective.__call__
        monkeypatch.setattr(
            run.Objective, "__call__", lambda *given: kept(*given) + torch.tensor(torch.nan)
        )
    with pytest.raises(InputError, match="not a finite number at step 1"):
        train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)
    assert all(torch.equal(own, before[name]) for name, own in weights(student).items())


def test_tensorboard_has_what_the_log_has(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setattr(run, "dev_sets", lambda _: [("toy", pool())])
    monkeypatch.setattr(run, "validate", lambda *_: {"phrase": 50.0})
    settings = config(tmp_path, "schedule.steps=4", "schedule.tensorboard=true")
    student, data = begin(folder, settings)
    train(student, data, settings, stage=2, folder=tmp_path / "run", cache=tmp_path)
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    rows = [json.loads(row) for row in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [(row["step"], pytest.approx(row["loss"])) for row in rows if "loss" in row]
    assert [(event.step, event.value) for event in board.Scalars("train/loss")] == losses
    assert [event.step for event in board.Scalars("dev/phrase")] == [0, 2, 4]
