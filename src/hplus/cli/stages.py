"""`hplus train stage1` and `stage2`: an encoder and its heads, as the paper trains them."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus.cli.common import console
from hplus.cli.sets import Cache, states_folder
from hplus.cli.train import peak_memory_mb
from hplus.errors import CheckpointError, MissingExtraError

if TYPE_CHECKING:
    from hplus.teach.groups import Bad
    from hplus.train.state import History

EXAMPLE1 = "Example: hplus train stage1 stage1.toml --set schedule.steps=1 --out adapted"
EXAMPLE2 = "Example: hplus train stage2 stage2.toml --set schedule.steps=1 --out mine"

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A TOML file; experiments/ has several.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The new checkpoint.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting to change; repeatable."),
]
Int8 = Annotated[
    bool, typer.Option("--int8/--float32", help="Precision of a BERT's weights in the checkpoint.")
]
Device = Annotated[str, typer.Option("--device", help="A torch device.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Of torch and numpy.")]
Name = Annotated[str | None, typer.Option("--name", help="Of the checkpoint.")]


def stage1(
    config: ConfigFile,
    out: Out,
    changes: Changes = None,
    cache: Cache = None,
    int8: Int8 = False,
    device: Device = "cpu",
    threads: Threads = None,
    name: Name = None,
) -> None:
    """Adapt an encoder on pairs: the global view, at all widths; run again to resume."""
    _train(1, config, out, changes or [], cache, int8, device, threads, name)


def stage2(
    config: ConfigFile,
    out: Out,
    changes: Changes = None,
    cache: Cache = None,
    int8: Int8 = False,
    device: Device = "cpu",
    threads: Threads = None,
    name: Name = None,
) -> None:
    """Train all views together, with a teacher's scores and labels; run again to resume."""
    _train(2, config, out, changes or [], cache, int8, device, threads, name)


def _train(
    stage: int,
    file: Path,
    out: Path,
    changes: list[str],
    cache: Path | None,
    int8: bool,
    device: str,
    threads: int | None,
    name: str | None,
) -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("training needs torch: pip install 'hplus[train]'")
    import torch
    from threadpoolctl import threadpool_limits

    from hplus import checkpoint
    from hplus.evaluate.data import texts_of
    from hplus.teach.duplicates import collect
    from hplus.teach.groups import Bad, stream_groups
    from hplus.teach.label_file import stream_labels
    from hplus.train import distributed
    from hplus.train.config import as_table, read_config
    from hplus.train.data import Batches
    from hplus.train.data_files import open_data, write_data
    from hplus.train.run import train
    from hplus.train.saving import save_student
    from hplus.train.student import make_student

    if threads:
        torch.set_num_threads(threads)
        threadpool_limits(threads)  # numpy's products, which find and merge units
    settings = read_config(file, changes)
    if out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out} exists and is not empty; choose another folder")
    started = time.monotonic()
    world = distributed.join()
    if world.processes > 1 and torch.cuda.is_available():
        device = f"cuda:{world.process % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    base = checkpoint.load(settings.student.start, device=device)
    data_files = [Path(name) for name in settings.data.groups]
    label_files = [Path(name) for name in settings.data.labels]
    work = out.with_name(f".{out.name}.run")
    bad = Bad()
    if world.first:
        apart = settings.data.apart_from
        against = collect(t for f in apart for t in texts_of(Path(f))) if apart else None
        scored = stage == 2 and _needs_scores(settings)
        groups = stream_groups(data_files, bad, apart_from=against, scored=scored)
        labels = (
            (item.text, item.units) for file in label_files for _, item in stream_labels(file)
        )
        write_data(work / "data", groups, labels, base.backbone, base.recipe, settings, bad)
    distributed.wait(world)
    data = open_data(work / "data", base.backbone, base.recipe, settings)
    student = make_student(base, settings, stage)
    student.to(device)
    if world.first:
        few = Batches(data, settings, processes=world.processes, stage=stage).left_out
        _report(bad, len(data.queries), few)
    digest = _digest([*data_files, *label_files])
    try:
        with states_folder(cache) as folder:
            history = train(
                student,
                data,
                settings,
                stage=stage,
                folder=work,
                cache=folder,
                world=world,
                digest=digest,
            )
        if world.first:
            log = {
                "stage": stage,
                "config": as_table(settings),
                "rows": len(data.queries),
                "left_out": dict(bad.kinds),
                "steps": history.step,
                "taus": history.taus,
                "validations": history.validations,
                "minutes": round((time.monotonic() - started) / 60, 1),
                "peak_memory_mb": peak_memory_mb(),
            }
            save_student(
                student,
                out,
                name=name or out.name,
                precision="int8" if int8 else "float32",
                notes={f"stage{stage}": log},
            )
            shutil.copyfile(work / "log.jsonl", out / "log.jsonl")
            if settings.schedule.tensorboard:
                shutil.copytree(work / "tensorboard", out / "tensorboard")
            shutil.rmtree(work)
            _print(history, log, out)
    finally:
        distributed.leave()


def _needs_scores(settings: Any) -> bool:
    loss = settings.loss
    heads = (loss.global_, loss.token, loss.lexical, loss.units)
    return any(head.weight and head.distillation for head in heads)


def _digest(files: list[Path]) -> str:
    """A hash of the training data."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _report(bad: Bad, rows: int, few: dict[str, int]) -> None:
    for place in bad.places:
        typer.echo(f"left out: {place}", err=True)
    for kind, count in bad.kinds.items():
        typer.echo(f"{count:,} row{'s' * (count > 1)} left out: {kind}", err=True)
    for source, count in few.items():
        typer.echo(f"{source}: its {count:,} rows are too few for a batch and not used", err=True)
    print(f"{rows - sum(few.values()):,} rows to train on", flush=True)


def _print(history: History, log: dict[str, Any], out: Path) -> None:
    screen = console()
    if history.taus:
        taus = ", ".join(f"{name} {tau:.3g}" for name, tau in history.taus.items())
        screen.print(f"tau measured: {taus}")
    found = history.validations
    if len(found) > 1:
        by = log["config"]["dev"]["by"]
        best = max(found[1:], key=lambda row: row[by])
        for row, what in ((found[0], "before"), (best, f"step {best['step']:g}")):
            figures = ", ".join(
                f"{k} {v:.1f}" for k, v in row.items() if k not in ("step", "averaged")
            )
            screen.print(f"{what}: {figures}")
        if best[by] <= found[0][by]:
            screen.print("no weights were better on the dev sets than those it began with")
    memory = f", {log['peak_memory_mb']:,} MB" if log["peak_memory_mb"] else ""
    screen.print(f"{history.step:,} steps, {log['minutes']} minutes{memory}: {out}")
