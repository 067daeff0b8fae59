"""A run on disk: everything that resuming needs, in safetensors, written whole or not at all.

RUN/state.safetensors  weights that learn, the optimiser's moments, step and history
RUN/best-<step>.safetensors  the best validated weights
RUN/log.jsonl          losses and validations
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hplus.errors import InputError
from hplus.files import writing

STATE = "state.safetensors"


@dataclass
class History:
    """What a run knows of its past: steps done, validations with their step, the temperatures it
    measured, and what it is."""

    run: dict[str, Any]
    step: int = 0
    validations: list[dict[str, float]] = field(default_factory=list)
    taus: dict[str, float] = field(default_factory=dict)


def save(
    folder: Path, learning: Mapping[str, Tensor], optimiser: torch.optim.Optimizer, now: History
) -> None:
    """Everything of this step in one file."""
    tensors = {f"now.{name}": p for name, p in learning.items()}
    for number, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"moment.{number}.{key}": value for key, value in moments.items()}
    note = {
        "run": now.run,
        "step": now.step,
        "validations": now.validations,
        "taus": now.taus,
    }
    _write(folder / STATE, tensors, {key: json.dumps(value) for key, value in note.items()})


def resume(
    folder: Path,
    learning: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    run: dict[str, Any],
) -> History:
    """Weights and moments as they were left; a new history where there is nothing."""
    path = folder / STATE
    if not path.exists():
        return History(run)
    try:
        with safetensors.safe_open(path, "pt") as file:
            note = {key: json.loads(value) for key, value in file.metadata().items()}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        other = [what.removeprefix("config.") for what in differences(note["run"], run)]
        past = History(run, int(note["step"]), note["validations"], note.get("taus", {}))
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); delete {folder}") from None
    if other:
        raise InputError(
            f"{path} belongs to a run with other settings ({', '.join(other)}); delete {folder} to "
            "start again, or choose another --out"
        )
    load(learning, {k.removeprefix("now."): v for k, v in tensors.items() if k.startswith("now.")})
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("moment."):
            number, key = name.removeprefix("moment.").split(".", 1)
            moments.setdefault(int(number), {})[key] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
    return past


def differences(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> list[str]:
    """What two runs do not share, by its name in the configuration, with both values.

    >>> differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3, "d": 4}})
    ['b.c was 2, is 3', 'b.d was missing, is 4']
    """
    found: list[str] = []
    for name in [*old, *(name for name in new if name not in old)]:
        before, now = (side.get(name, "missing") for side in (old, new))
        if isinstance(before, dict) and isinstance(now, dict):
            found += differences(before, now, f"{where}{name}.")
        elif before != now:
            found.append(f"{where}{name} was {before!s:.40}, is {now!s:.40}")
    return found


def load(learning: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Put stored weights in their places."""
    if set(learning) != set(tensors):
        raise InputError("the stored weights are not those that learn in this run")
    with torch.no_grad():
        for name, parameter in learning.items():
            parameter.copy_(tensors[name])


def best_file(folder: Path, step: int) -> Path:
    """Where the weights of a validated step are kept."""
    return folder / f"best-{step}.safetensors"


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Weights that learn, by name."""
    _write(path, tensors, {})


def read_weights(path: Path) -> dict[str, Tensor]:
    """The same."""
    try:
        found: dict[str, Tensor] = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}); delete {path.parent}") from None
    return found


def _write(path: Path, tensors: Mapping[str, Tensor], note: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = safetensors.torch.save(
        {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()},
        metadata=note,
    )
    with writing(path) as file:
        file.write(data)
