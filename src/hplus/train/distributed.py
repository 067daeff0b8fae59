"""Several processes under torchrun: gloo on CPUs, nccl on GPUs.

Each process takes its share of the queries of a batch, gradients are averaged, and the global head
sees the documents of all processes; the other heads keep to their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class World:
    """Which process this is, of how many."""

    process: int = 0
    processes: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes, prints and validates."""
        return self.process == 0


def join() -> World:
    """The world that torchrun says there is; alone without it."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        return World()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return World(dist.get_rank(), processes)


def leave() -> None:
    """End what `join` began."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def gathered(rows: Tensor, world: World) -> Tensor:
    """The rows of all processes, [sum of n, …], in their order; the gradient flows to all."""
    if world.processes == 1:
        return rows
    sizes = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world.processes)]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
    counts = [int(size) for size in sizes]
    most = max(counts)
    padding = rows.new_zeros(most - len(rows), *rows.shape[1:])
    same = torch.cat([rows, padding])
    parts: Tensor = _Gather.apply(same)  # type: ignore[no-untyped-call]
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _Gather(torch.autograd.Function):
    """all_gather whose gradient is the sum of what every process sends back."""

    @staticmethod
    def forward(_ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous()
        dist.all_reduce(total)
        return total[dist.get_rank()]


def average_gradients(parameters: Iterable[Tensor], world: World) -> None:
    """The mean over the processes; a parameter without a gradient counts as zero."""
    if world.processes == 1:
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= world.processes


def agreed(value: float, world: World) -> float:
    """What the first process says."""
    if world.processes == 1:
        return value
    told = torch.tensor([value], dtype=torch.float64)
    if torch.cuda.is_available():
        told = told.cuda()
    dist.broadcast(told, 0)
    return float(told)


def wait(world: World) -> None:
    """Until every process is here."""
    if world.processes > 1:
        dist.barrier()
