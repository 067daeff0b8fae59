"""The training loop of a small head: seeded, resumable, with a validation curve.

After every epoch the parameters, the optimiser's moments and the curve are on disk, and the order
of batches depends only on the seed and the epoch's number; so an interrupted run ends with exactly
the weights of an uninterrupted one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from hplus.errors import InputError
from hplus.files import writing
from hplus.progress import show_progress

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Schedule:
    """epochs: at most; patience: epochs without a better validation loss before training stops."""

    epochs: int = 20
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    patience: int = 3
    seed: int = 13


def fit(
    module: nn.Module,
    batches: Sequence[Batch],
    loss: Callable[[Batch], Tensor],
    validate: Callable[[], dict[str, float]],
    schedule: Schedule,
    file: Path,
    *,
    data: str = "",
) -> list[dict[str, float]]:
    """Train in place to the best validation loss ("loss" of `validate`, smaller is better).

    Returns the curve, one row per epoch. `file` (.safetensors) keeps the state between runs; it
    must not come from another schedule, module or `data` (a hash of the training data).
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(schedule.seed)
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay
    )
    steps = max(1, schedule.epochs * len(batches))
    shapes = {key: list(value.shape) for key, value in module.state_dict().items()}
    run = {**asdict(schedule), "batches": len(batches), "shapes": shapes, "data": data}
    curve, best = _resume(module, optimiser, file, run)
    with show_progress(f"training {file.stem}", schedule.epochs * len(batches)) as bar:
        bar.advance(len(curve) * len(batches))
        while len(curve) < schedule.epochs and not _is_over(curve, schedule.patience):
            epoch = len(curve)
            module.train()
            total = 0.0
            for number, batch in enumerate(_shuffled(batches, schedule.seed, epoch)):
                done = (epoch * len(batches) + number) / steps
                for group in optimiser.param_groups:
                    group["lr"] = schedule.learning_rate * max(0.02, 1 - done)
                value = loss(batch)
                optimiser.zero_grad()
                torch.autograd.backward(value)
                optimiser.step()
                total += float(value.detach())
                bar.advance(1)
            module.eval()
            with torch.no_grad():
                measured = validate()
            if not math.isfinite(measured["loss"]):
                raise InputError(
                    f"after epoch {epoch + 1} the validation loss is not a finite number: the "
                    f"encoder's states are not, or {schedule.learning_rate:g} is too high a rate"
                )
            row = {"epoch": epoch + 1, "training_loss": total / max(1, len(batches)), **measured}
            if all(row["loss"] < earlier["loss"] for earlier in curve):
                best = {name: p.detach().clone() for name, p in module.state_dict().items()}
            curve.append(row)
            _save(module, optimiser, best, curve, run, file)
    module.load_state_dict(best)
    module.eval()
    return curve


def _is_over(curve: list[dict[str, float]], patience: int) -> bool:
    if not curve:
        return False
    best = min(range(len(curve)), key=lambda epoch: curve[epoch]["loss"])
    return len(curve) - 1 - best >= patience


def _shuffled(batches: Sequence[Batch], seed: int, epoch: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed * 1_000 + epoch)
    for place in torch.randperm(len(batches), generator=generator).tolist():
        yield batches[place]


def _save(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    best: dict[str, Tensor],
    curve: list[dict[str, float]],
    run: dict[str, object],
    state_file: Path,
) -> None:
    """One file, so that weights and curve always belong to the same epoch."""
    tensors = {f"now.{name}": p for name, p in module.state_dict().items()}
    tensors |= {f"best.{name}": p for name, p in best.items()}
    for number, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"moment.{number}.{key}": value for key, value in moments.items()}
    data = safetensors.torch.save(
        {key: value.detach().clone().contiguous() for key, value in tensors.items()},
        metadata={"run": json.dumps(run), "curve": json.dumps(curve)},
    )
    with writing(state_file) as file:
        file.write(data)


def _resume(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    state_file: Path,
    run: dict[str, object],
) -> tuple[list[dict[str, float]], dict[str, Tensor]]:
    if not state_file.exists():
        return [], {}
    try:
        with safetensors.safe_open(state_file, "pt") as file:
            note = {key: json.loads(value) for key, value in file.metadata().items()}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        other = [key for key in run if note["run"].get(key) != run[key]]
    except (safetensors.SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{state_file} is damaged ({error}); delete it") from None
    if other:
        differences = ", ".join(f"{key} {note['run'].get(key)}, not {run[key]}" for key in other)
        raise InputError(
            f"{state_file} belongs to another run ({differences}); "
            "delete it to start again, or choose another folder"
        )

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    module.load_state_dict(part("now."))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in part("moment.").items():
        number, key = name.split(".", 1)
        moments.setdefault(int(number), {})[key] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
    return note["curve"], part("best.")
