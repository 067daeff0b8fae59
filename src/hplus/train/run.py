"""Two-stage training from top to bottom: the loop, nothing else.

batch -> states -> loss -> gradient -> clip -> step; now and then validate, save, stop
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hplus.errors import InputError
from hplus.progress import show_progress
from hplus.train import distributed, state
from hplus.train.config import Config, as_table
from hplus.train.data import Batches, Data, part_of
from hplus.train.distributed import World
from hplus.train.lower import stored_lower
from hplus.train.objective import Objective
from hplus.train.passes import Reader, backward, cached_backward
from hplus.train.student import Student
from hplus.train.teacher import Target, make_target, make_teacher
from hplus.train.temperature import measured, with_taus
from hplus.train.texts import Texts, read_texts
from hplus.train.validation import Pool, dev_sets, validate


def train(
    student: Student,
    data: Data,
    config: Config,
    *,
    stage: int,
    folder: Path,
    cache: Path,
    world: World | None = None,
    digest: str = "",
) -> state.History:
    """Train in place; afterwards the student has the weights that validated best.

    folder: keeps the run, so that it can be resumed. cache: states of the lower layers. digest:
    a hash of the training data; a run is resumed with the same data or not at all.
    """
    world = world or World()
    schedule = config.schedule
    batches = Batches(data, config, processes=world.processes, stage=stage)
    learning = student.learning()
    require_purpose(student, config, stage)
    optimiser = make_optimiser(learning, config)
    run = {"config": as_table(config), "stage": stage, "data": digest, "processes": world.processes}
    history = state.resume(folder, learning, optimiser, json.loads(json.dumps(run)))
    log = Log(folder, history.step, config, world)

    reader = make_reader(student, config, cache, world)
    readers = [reader(data.queries, "queries"), reader(data.documents, "documents")]
    # The first process alone has dev sets: nobody may be waited for while it reads them.
    pools = (
        make_pools(student, config, make_reader(student, config, cache, World()))
        if world.first
        else []
    )
    targets = make_targets(student, data, config, cache, world)
    if not history.step:
        history.taus = measured(student, data, config, stage, batches, readers, world)
        if history.taus:
            log.write({"step": 0, **{f"{name}.tau": tau for name, tau in history.taus.items()}})
    config = with_taus(config, history.taus)
    objective = Objective(student, data, config, stage, world, targets)
    step_backward = cached_backward if config.batch.gradient_cache else backward
    still = fingerprint(student)
    before = {name: p.detach().clone() for name, p in learning.items()}
    if not history.step:
        if pools:
            history.validations.append({"step": 0, **validate(student, pools, config.dev)})
            log.write(history.validations[-1])
        share_history(history, config.dev.by, world)

    with show_progress(f"stage {stage}", schedule.steps, wanted=world.first) as bar:
        bar.advance(history.step)
        while history.step < schedule.steps and not is_over(
            history, schedule.patience, config.dev.by
        ):
            started = time.monotonic()
            batch = part_of(batches.at(history.step), world.process, world.processes)
            for group in optimiser.param_groups:
                group["lr"] = group["full"] * rate(history.step, schedule.steps, schedule.warmup)
            optimiser.zero_grad()
            loss = step_backward(
                readers, [batch.queries, batch.documents], partial(objective, batch)
            )
            require_finite(loss, history.step)
            distributed.average_gradients(learning.values(), world)
            norm = torch.nn.utils.clip_grad_norm_(learning.values(), schedule.clip)
            require_finite(norm, history.step)
            optimiser.step()
            history.step += 1
            bar.advance(1)
            log.write(
                {
                    "step": history.step,
                    "loss": float(loss),
                    **objective.parts,
                    "gradient": float(norm),
                    "rate": optimiser.param_groups[0]["lr"],
                    "documents": len(batch.documents),
                    "seconds": round(time.monotonic() - started, 3),
                }
            )
            validated = (
                history.step == schedule.steps or history.step % schedule.validate_every == 0
            )
            if validated:
                require_movement(learning, before)
                require_stillness(student, still)
                if pools:
                    found = {"step": history.step, **validate(student, pools, config.dev)}
                    history.validations.append(found)
                    log.write(found)
                    keep_best(folder, learning, history, config)
                share_history(history, config.dev.by, world)
            if world.first and (validated or history.step % schedule.save_every == 0):
                state.save(folder, learning, optimiser, history)
    if world.first:
        state.save(folder, learning, optimiser, history)
        if pools:
            choose(student, learning, folder, history, pools, config, log)
    distributed.wait(world)
    return history


def make_optimiser(learning: dict[str, torch.nn.Parameter], config: Config) -> torch.optim.AdamW:
    """The encoder at one rate, the heads at another; norms and biases do not decay."""
    schedule = config.schedule
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in learning.items():
        encoder = name.startswith("encoder.")
        full = schedule.learning_rate if encoder else schedule.head_learning_rate
        decay = schedule.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((full, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": own, "lr": full, "full": full, "weight_decay": decay}
            for (full, decay), own in groups.items()
        ]
    )


def rate(step: int, steps: int, warmup: float) -> float:
    """The share of the full rate: a straight rise, then a cosine to a tenth.

    >>> [round(rate(step, 100, 0.1), 2) for step in (0, 9, 10, 55, 100)]
    [0.1, 1.0, 1.0, 0.55, 0.1]
    """
    rise = int(warmup * steps)
    if step < rise:
        return (step + 1) / rise
    done = (step - rise) / max(1, steps - rise)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))


def make_reader(
    student: Student, config: Config, cache: Path, world: World
) -> Callable[[Texts, str], Reader]:
    """A function that makes readers; stored states are computed by the first process alone."""
    autocast = precision(config, student.backbone.device)

    def reader(texts: Texts, what: str) -> Reader:
        lower = None
        if config.student.cached:
            for turn in (True, False):
                if world.first == turn:
                    with autocast():
                        lower = stored_lower(
                            student, texts, cache, chunk=config.batch.chunk, what=what
                        )
                distributed.wait(world)
        return Reader(student, texts, lower, config.batch.chunk, autocast)

    return reader


def make_targets(
    student: Student, data: Data, config: Config, cache: Path, world: World
) -> list[Target]:
    """The teacher's states for `loss.states`, if it is on; computed by the first process alone."""
    if not config.loss.states.weight:
        return []
    heads = config.loss.states.heads > 0
    teacher = make_teacher(config.loss.states.teacher, student, heads=heads)
    autocast, chunk = precision(config, student.backbone.device), config.batch.chunk
    found: list[Target] = []
    for turn in (True, False):
        if world.first == turn:
            with autocast():
                found = [
                    make_target(teacher, student, texts, cache, chunk=chunk, what=what, heads=heads)
                    for texts, what in ((data.queries, "queries"), (data.documents, "documents"))
                ]
        distributed.wait(world)
    return found


def precision(config: Config, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """bfloat16 in the encoder where the hardware computes in it; losses are always float32."""
    wanted = config.schedule.precision
    if wanted == "auto":
        wanted = "bfloat16" if has_bfloat16(device) else "float32"
    if wanted == "float32":
        return nullcontext
    return partial(torch.autocast, device.type, dtype=torch.bfloat16)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware computes in bfloat16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    # Without the instructions bfloat16 is a hundred times slower, not faster.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)


def make_pools(
    student: Student, config: Config, reader: Callable[[Texts, str], Reader]
) -> list[Pool]:
    """The dev sets, read as training reads."""
    recipe, backbone = student.checkpoint.recipe, student.backbone
    pools = []
    for name, found in dev_sets(config.dev):
        queries = read_texts(found.queries, backbone, recipe, "query", config.dev.length)
        documents = read_texts(found.documents, backbone, recipe, "document", config.dev.length)
        readers = reader(queries, f"{name}'s queries"), reader(documents, f"{name}'s documents")
        pools.append(Pool(name, found, *readers))
    return pools


def is_over(history: state.History, patience: int, by: str) -> bool:
    """Whether the last `patience` validations brought nothing better."""
    if not patience or len(history.validations) <= patience:
        return False
    values = [found[by] for found in history.validations]
    return len(values) - 1 - values.index(max(values)) >= patience


def best_of(history: state.History, config: Config) -> list[dict[str, float]]:
    """The best validations of trained weights, as many as may be averaged, the best first."""
    trained = [found for found in history.validations if found["step"]]
    ranked = sorted(trained, key=lambda found: -found[config.dev.by])
    return ranked[: max(1, config.schedule.average)]


def keep_best(
    folder: Path, learning: dict[str, torch.nn.Parameter], history: state.History, config: Config
) -> None:
    """The weights just validated, if they are among the best; others are deleted."""
    best = best_of(history, config)
    steps = {int(found["step"]) for found in best}
    if history.step in steps:
        state.write_weights(state.best_file(folder, history.step), dict(learning))
    for file in folder.glob("best-*.safetensors"):
        if int(file.stem.removeprefix("best-")) not in steps:
            file.unlink()


def choose(
    student: Student,
    learning: dict[str, torch.nn.Parameter],
    folder: Path,
    history: state.History,
    pools: list[Pool],
    config: Config,
    log: Log,
) -> None:
    """The best validated weights, or the mean of the best few if that is better."""
    ranked = best_of(history, config)
    kept = [
        state.read_weights(file)
        for found in ranked
        if (file := state.best_file(folder, int(found["step"]))).exists()
    ]
    if not kept:
        return
    if len(kept) > 1:
        state.load(learning, {n: torch.stack([k[n] for k in kept]).mean(0) for n in kept[0]})
        found = {
            "step": history.step,
            "averaged": len(kept),
            **validate(student, pools, config.dev),
        }
        log.write(found)
        if found[config.dev.by] >= ranked[0][config.dev.by]:
            history.validations.append(found)
            return
    state.load(learning, kept[0])


def share_history(history: state.History, by: str, world: World) -> None:
    """Other processes learn the metric of the first, so that all stop together."""
    if world.processes == 1:
        return
    known = history.validations[-1][by] if world.first and history.validations else math.nan
    value = distributed.agreed(known, world)
    if not world.first and not math.isnan(value):
        history.validations.append({"step": history.step, by: value})


def require_purpose(student: Student, config: Config, stage: int) -> None:
    """Something learns, some loss is on, and each has what it needs."""
    loss = config.loss
    if not student.learning():
        raise InputError(
            f"nothing would learn in stage {stage}: student.mode is {student.settings.mode!r} and "
            "no head learns; choose another mode, or in stage 2 name heads under student.heads"
        )
    parts = (loss.global_, loss.token, loss.lexical, loss.units)
    others = (loss.segmentation, loss.boundaries, loss.states)
    if stage == 2 and not any(part.weight for part in (*parts, *others)):
        raise InputError("no loss is on; give one or more of [loss.*] a weight above 0")
    for name in ("segmentation", "boundaries"):
        if stage == 2 and getattr(loss, name).weight and student.crf is None:
            raise InputError(
                f"loss.{name} needs a CRF: name crf under student.heads, or start from a model "
                "that has one"
            )


def require_finite(value: Tensor, step: int) -> None:
    """Stop before a bad number reaches the weights; the state on disk is from before it."""
    if not bool(torch.isfinite(value)):
        raise InputError(
            f"the loss or its gradient is not a finite number at step {step + 1}; lower the "
            "learning rate or raise tau, then start anew with another --out"
        )


def require_movement(learning: dict[str, torch.nn.Parameter], before: dict[str, Tensor]) -> None:
    """Every parameter that learns has changed since the run began."""
    same = [name for name, p in learning.items() if torch.equal(p.detach(), before[name])]
    if same:
        raise InputError(
            f"{len(same)} of {len(learning)} parameters that should learn have not moved, the "
            f"first is {same[0]}; does any loss that is on depend on them?"
        )


def require_stillness(student: Student, still: str) -> None:
    """No frozen parameter has changed."""
    if fingerprint(student) != still:
        raise InputError("a frozen parameter moved; this is a defect of hplus, please report it")


def fingerprint(student: Student) -> str:
    """A hash of everything that must not change."""
    digest = hashlib.sha256()
    for name, parameter in student.still():
        digest.update(name.encode() + parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def _stays(line: str, step: int) -> bool:
    """Whether a row of the log is whole and what a run resumed at this step will not write again,
    as it does with the mean of its best weights."""
    try:
        row = json.loads(line)
        return int(row["step"]) <= step and "averaged" not in row
    except (ValueError, KeyError, TypeError):
        return False


class Log:
    """JSON Lines, and TensorBoard if asked for; rows after the step resumed from are dropped."""

    def __init__(self, folder: Path, step: int, config: Config, world: World) -> None:
        self.path = folder / "log.jsonl"
        self.quiet = not world.first
        self.board: Any = None
        if self.quiet:
            return
        folder.mkdir(parents=True, exist_ok=True)
        kept = []
        if self.path.exists() and step:
            # A crash may have cut off a line, or left zeros where one should be.
            lines = self.path.read_text("utf-8", errors="replace").splitlines()
            kept = [line for line in lines if _stays(line, step)]
        self.path.write_text("".join(f"{line}\n" for line in kept), "utf-8")
        if config.schedule.tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise InputError("schedule.tensorboard needs it: pip install tensorboard") from None
            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)

    def write(self, row: dict[str, float]) -> None:
        """One row, on the disk when this returns."""
        if self.quiet:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self.board is not None:
            kind = "dev" if "phrase" in row else "train"
            for name, value in row.items():
                if name != "step":
                    self.board.add_scalar(f"{kind}/{name}", value, int(row["step"]))
            self.board.flush()
