"""`hplus train heads`: a CRF and an importance head on a frozen backbone."""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import Model, console
from hplus.cli.sets import Cache, states_folder
from hplus.cli.teach import ApartFrom, Patterns, Seed
from hplus.errors import CheckpointError, InputError, MissingExtraError

if TYPE_CHECKING:
    from hplus.model import HPlus
    from hplus.train.heads import Heads

app = typer.Typer(help="Train heads, or an encoder with its heads.", no_args_is_help=True)
EXAMPLE = (
    "Example: hplus train heads labels.jsonl.gz --dev dev.jsonl.gz --pairs pairs.jsonl --out mine"
)


@app.command("heads", epilog=EXAMPLE)
def heads(
    labels: Annotated[
        list[Path], typer.Argument(metavar="LABELS…", help="From `hplus teach labels`.")
    ],
    dev: Annotated[
        list[Path],
        typer.Option("--dev", metavar="LABELS", help="Labels to validate on; repeatable."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new checkpoint.")],
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help='.jsonl of {"query", "positive"}, gz allowed; repeatable. Without, only the CRF.',
        ),
    ] = None,
    sample: Annotated[int, typer.Option("--sample", min=2, help="Pairs of each file.")] = 1_000,
    apart_from: ApartFrom = None,
    model: Model = DEFAULT_MODEL,
    layer: Annotated[
        int | None, typer.Option("--layer", min=1, help="The layer that both heads read.")
    ] = 3,
    hidden: Annotated[
        int, typer.Option("--hidden", min=0, help="Units of the CRF's hidden layer, 0 for none.")
    ] = 64,
    patterns: Patterns = True,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="At most.")] = 20,
    cache: Cache = None,
    device: Annotated[str | None, typer.Option("--device", help="A torch device.")] = None,
    seed: Seed = 13,
    name: Annotated[str | None, typer.Option("--name", help="Of the checkpoint.")] = None,
) -> None:
    """Train the CRF on labels and the importance head on pairs; run again to resume."""
    from hplus.evaluate.data import texts_of
    from hplus.model import HPlus
    from hplus.teach.duplicates import collect
    from hplus.teach.label_file import read_labels

    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("training needs torch: pip install 'hplus[torch,bm25]'")
    from hplus.train.heads import train_heads
    from hplus.train.loop import Schedule
    from hplus.train.pairs import read_pairs

    if out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out} exists and is not empty; choose another folder")
    started = time.monotonic()
    base = HPlus(model, device=device, long="cut", layer=layer, patterns=patterns)
    _require_layer(model, base, with_importance=bool(pairs))
    training, validation = read_labels(*labels), read_labels(*dev)
    against = collect(t for f in apart_from for t in texts_of(f)) if apart_from else None
    read = read_pairs(pairs, sample=sample, apart_from=against, seed=seed) if pairs else None
    work = out.with_name(f".{out.name}.run")
    with states_folder(cache) as states:
        trained = train_heads(
            base,
            training,
            validation,
            read,
            cache=states,
            folder=work,
            hidden=hidden,
            schedule=Schedule(epochs=epochs, seed=seed),
        )
    log: dict[str, Any] = {
        "labels": {source: len(items) for source, items in training.items()},
        "pairs": read.report if read else {},
        "seed": seed,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "peak_memory_mb": peak_memory_mb(),
        "curves": trained.curves,
    }
    _save(out, base, trained, name or out.name, log)
    for file in work.iterdir():
        file.unlink()
    work.rmdir()
    _print(log, out)


def _require_layer(model: str, base: HPlus, *, with_importance: bool) -> None:
    """Heads of the base that are kept go on reading the layer they were trained on."""
    from hplus.model import HPlus

    parts = base.checkpoint
    kept = {"importance": parts.head if not with_importance else None, "lexical": parts.lexical}
    names = [name for name, head in kept.items() if head is not None]
    if not names:
        return
    depth = parts.backbone.depth
    own, wanted = (recipe.layer or depth for recipe in (HPlus(model).recipe, base.recipe))
    if own != wanted:
        raise InputError(
            f"the {' and '.join(names)} head of {model}, which would be kept, reads layer {own}, "
            f"not {wanted}; give --layer {own}, or train from a model without it"
        )


def _save(out: Path, base: HPlus, trained: Heads, name: str, log: dict[str, Any]) -> None:
    from hplus import checkpoint

    # Without pairs the base keeps its own importance head, if it has one.
    head = trained.importance or base.checkpoint.head
    recipe = replace(
        base.recipe,
        name=name,
        units="crf",
        long="stitch",
        importance="head" if head else base.recipe.importance,
        trained=tuple(
            dict.fromkeys([*base.recipe.trained, "crf", *(["importance"] if head else [])])
        ),
    )
    notes = {**base.checkpoint.notes, "training": log}
    checkpoint.save(
        out, replace(base.checkpoint, recipe=recipe, crf=trained.crf, head=head, notes=notes)
    )


def peak_memory_mb() -> int | None:
    """The most memory this process has held; unknown on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)


def _print(log: dict[str, Any], out: Path) -> None:
    screen = console()
    for head, curve in log["curves"].items():
        best = min(curve, key=lambda row: row["loss"])
        figures = ", ".join(f"{k} {v:.4f}" for k, v in best.items() if k != "epoch")
        screen.print(f"{head}: best of {len(curve)} epochs is {best['epoch']:g}: {figures}")
    memory = f", {log['peak_memory_mb']:,} MB" if log["peak_memory_mb"] else ""
    screen.print(f"{log['minutes']} minutes{memory}: {out}")
