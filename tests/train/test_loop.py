"""The loop: seeded, resumable to the bit, and back at its best epoch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hplus.errors import InputError  # noqa: E402
from hplus.train.loop import Schedule, fit  # noqa: E402

BATCHES = [torch.randn(8, 3, generator=torch.Generator().manual_seed(i)) for i in range(5)]
TRUTH = torch.tensor([1.0, -2.0, 0.5])
SCHEDULE = Schedule(epochs=6, learning_rate=0.1, patience=6)


class StoppedError(Exception):
    """The run is interrupted."""


def new_module() -> Any:
    module = torch.nn.Linear(3, 1)
    with torch.no_grad():
        module.weight.fill_(0.3)
        module.bias.fill_(-0.2)
    return module


def distance(module: Any, batch: Any) -> Any:
    return (module(batch)[:, 0] - batch @ TRUTH).square().mean()


class Run:
    """A linear regression; `losses` replaces the validation loss, epoch by epoch."""

    def __init__(
        self,
        folder: Path,
        *,
        schedule: Schedule = SCHEDULE,
        batches: Iterable[Any] = BATCHES,
        losses: list[float] | None = None,
        stop_in_epoch: int | None = None,
        stop_in_batch: int | None = None,
    ) -> None:
        self.module = new_module()
        self.seen: list[list[int]] = [[]]
        self.weights: list[dict[str, Any]] = []
        batches = list(batches)

        def loss(batch: Any) -> Any:
            if stop_in_batch == sum(map(len, self.seen)):
                raise StoppedError
            self.seen[-1].append(next(i for i, b in enumerate(batches) if b is batch))
            assert self.module.training
            return distance(self.module, batch)

        def validate() -> dict[str, float]:
            if stop_in_epoch == len(self.weights):
                raise StoppedError
            assert not self.module.training
            assert not torch.is_grad_enabled()
            self.weights.append({k: v.clone() for k, v in self.module.state_dict().items()})
            self.seen.append([])
            if losses is not None:
                return {"loss": losses[len(self.weights) - 1]}
            return {"loss": float(distance(self.module, BATCHES[0])), "other": 0.0}

        self.curve = fit(
            self.module, batches, loss, validate, schedule, folder / "line.safetensors"
        )

    @property
    def result(self) -> dict[str, Any]:
        state: dict[str, Any] = self.module.state_dict()
        return state


def assert_equal(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """To the bit."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


def test_it_learns_and_tells_how(tmp_path: Path) -> None:
    schedule = Schedule(epochs=40, learning_rate=0.2, weight_decay=0.0, patience=40)
    run = Run(tmp_path, schedule=schedule)
    assert [row["epoch"] for row in run.curve] == list(range(1, 41))
    assert set(run.curve[0]) == {"epoch", "training_loss", "loss", "other"}
    assert run.curve[-1]["training_loss"] < 0.01 < run.curve[0]["training_loss"]
    with torch.no_grad():
        final = float(distance(run.module, BATCHES[0]))
    assert final == pytest.approx(min(row["loss"] for row in run.curve), rel=1e-3)
    assert not run.module.training


def test_the_same_call_gives_the_same_weights(tmp_path: Path) -> None:
    first = Run(tmp_path / "a")
    torch.rand(7)  # what was drawn before does not matter
    second = Run(tmp_path / "b")
    assert_equal(first.result, second.result)
    assert first.curve == second.curve
    other = Run(tmp_path / "c", schedule=Schedule(epochs=6, learning_rate=0.1, seed=14))
    assert not torch.equal(other.result["weight"], first.result["weight"])


def test_every_epoch_sees_every_batch_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    *epochs, rest = Run(tmp_path).seen
    assert rest == []
    assert [sorted(order) for order in epochs] == [list(range(len(BATCHES)))] * 6
    assert len({tuple(order) for order in epochs}) > 1


@pytest.mark.parametrize("epoch", range(6))
def test_interrupted_after_any_epoch_it_ends_the_same(tmp_path: Path, epoch: int) -> None:
    whole = Run(tmp_path / "whole")
    with pytest.raises(StoppedError):
        Run(tmp_path / "parts", stop_in_epoch=epoch)
    rest = Run(tmp_path / "parts")
    assert len(rest.weights) == 6 - epoch
    assert_equal(rest.result, whole.result)
    assert rest.curve == whole.curve


def test_interrupted_again_and_again_within_epochs_it_ends_the_same(tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole")
    for _ in range(5):
        with pytest.raises(StoppedError):
            Run(tmp_path / "parts", stop_in_batch=7)  # in the second epoch of each run
    rest = Run(tmp_path / "parts")
    assert len(rest.weights) == 1
    assert_equal(rest.result, whole.result)
    assert rest.curve == whole.curve


@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        ("line.safetensors", 1),
        ("line.safetensors", 3),
    ],
)
def test_interrupted_while_saving_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, epoch: int
) -> None:
    whole = Run(tmp_path / "whole")
    replace = Path.replace
    times = 0

    def fail(self: Path, target: Path) -> Path:
        nonlocal times
        times += target.name == name
        if times == epoch and target.name == name:
            raise StoppedError
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(StoppedError):
            Run(tmp_path / "parts")
    rest = Run(tmp_path / "parts")
    assert_equal(rest.result, whole.result)
    assert rest.curve == whole.curve


def test_a_finished_run_is_read_back(tmp_path: Path) -> None:
    whole = Run(tmp_path)
    again = Run(tmp_path, stop_in_batch=0, stop_in_epoch=0)
    assert_equal(again.result, whole.result)
    assert again.curve == whole.curve


@pytest.mark.parametrize(
    ("losses", "patience", "best", "epochs"),
    [
        ([3, 1, 2, 2.5, 0, 0], 2, 1, 4),
        ([3, 1, 2, 0, 0, 0], 2, 3, 6),
        ([3, 1, 1, 1, 0, 0], 2, 1, 4),  # an equal value is not better
        ([1, 2, 3, 4, 5, 6], 1, 0, 2),
        ([6, 5, 4, 3, 2, 1], 1, 5, 6),
        ([1, 2, 3, 4, 5, 0.5], 9, 5, 6),
        ([1, 2, 3, 4, 5, 6], 9, 0, 6),
    ],
)
def test_it_stops_when_nothing_improves_and_returns_the_best_epoch(
    tmp_path: Path, losses: list[float], patience: int, best: int, epochs: int
) -> None:
    schedule = Schedule(epochs=6, learning_rate=0.1, patience=patience)
    run = Run(tmp_path, schedule=schedule, losses=losses)
    assert [row["loss"] for row in run.curve] == losses[:epochs]
    assert len(run.weights) == epochs
    assert_equal(run.result, run.weights[best])
    again = Run(tmp_path, schedule=schedule, stop_in_batch=0)
    assert_equal(again.result, run.weights[best])
    assert again.curve == run.curve


@pytest.mark.parametrize("losses", [[float("nan"), 1.0], [1.0, float("inf")]])
def test_a_loss_that_is_no_number_stops_it(tmp_path: Path, losses: list[float]) -> None:
    """As the first of all it would have been the best for good."""
    with pytest.raises(InputError, match=f"epoch {1 if losses[0] != 1 else 2} .* not a finite"):
        Run(tmp_path, losses=losses)


def test_the_best_epoch_survives_an_interrupt(tmp_path: Path) -> None:
    losses = [3.0, 1, 2, 2, 2, 2]
    whole = Run(tmp_path / "whole", losses=losses)
    with pytest.raises(StoppedError):
        Run(tmp_path / "parts", losses=losses, stop_in_epoch=3)
    rest = Run(tmp_path / "parts", losses=losses[3:])
    assert_equal(rest.result, whole.weights[1])


@pytest.mark.parametrize(
    ("both", "changed"),
    [
        ("6.*7", {"schedule": Schedule(epochs=7, learning_rate=0.1, patience=6)}),
        ("0.1.*0.2", {"schedule": Schedule(epochs=6, learning_rate=0.2, patience=6)}),
        ("13.*14", {"schedule": Schedule(epochs=6, learning_rate=0.1, patience=6, seed=14)}),
        ("5.*4", {"batches": BATCHES[:4]}),
    ],
)
def test_another_schedule_in_the_same_folder_is_refused(
    tmp_path: Path, both: str, changed: dict[str, Any]
) -> None:
    Run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=rf"line\.safetensors belongs to another run.*{both}"):
        Run(tmp_path, **changed)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_batches_nothing_is_learned(tmp_path: Path) -> None:
    run = Run(tmp_path, batches=[])
    assert_equal(run.result, new_module().state_dict())
