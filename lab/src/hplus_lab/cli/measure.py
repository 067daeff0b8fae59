"""`hplus-lab measure`: one protocol on one set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hplus import DEFAULT_MODEL
from hplus.cli.common import Device, Json, Model, console, print_json
from hplus.cli.evaluate import print_rows
from hplus.cli.sets import Cache, Folder, Limit, Split, read_set, states_folder
from hplus.errors import InputError
from hplus_lab.cli.options import BaselinesFolder, TermsFile, read_terms

if TYPE_CHECKING:
    from hplus_lab.cell import Cell
    from hplus_lab.experiment import Inputs
    from hplus_lab.protocol import Protocol

EXAMPLE = "Example: hplus-lab measure scifact broad-deployed --terms terms.txt --cache states"


def measure(
    folder: Folder,
    name: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="`hplus-lab protocol` lists them.")
    ],
    split: Split = "test",
    model: Model = DEFAULT_MODEL,
    terms: TermsFile = None,
    dev: Annotated[
        list[str] | None,
        typer.Option("--dev", help="DIR:SPLIT to tune on, where the protocol tunes; repeatable."),
    ] = None,
    cache: Cache = None,
    baselines: BaselinesFolder = None,
    limit: Limit = 0,
    times_file: Annotated[
        Path | None, typer.Option("--times", help="JSON file for the times of every line.")
    ] = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Every line of a frozen protocol on one set, with 95 % intervals and planned contrasts."""
    from hplus_lab.cache import write_json
    from hplus_lab.config import System
    from hplus_lab.measure import Task
    from hplus_lab.measure import measure as measure_cell
    from hplus_lab.protocols import load

    task = Task(folder.name, split, read_set(folder, split))
    protocol = load(name)
    if times_file is not None and not times_file.parent.is_dir():
        raise InputError(f"--times {times_file}: {times_file.parent} is not a folder")
    inputs = _inputs(protocol, terms, dev or [], baselines)
    with states_folder(cache) as states:
        cell, times = measure_cell(
            System(model, model), protocol, task, states, inputs, limit=limit, device=device
        )
    if times_file is not None:
        write_json(times_file, times)
    _show(cell, protocol, json_=json_)


def _inputs(
    protocol: Protocol, terms: Path | None, dev: list[str], baselines: Path | None
) -> Inputs:
    """What the options name; what the protocol does not use is a mistake."""
    from hplus_lab.experiment import Inputs
    from hplus_lab.kinds import KINDS

    used = KINDS[protocol.kind].uses
    for option, given, needed in (
        ("--terms", terms, protocol.boundaries == "model+terms"),
        ("--dev", dev, "dev" in used),
        ("--baselines", baselines, "baselines" in used),
    ):
        if given and not needed:
            raise InputError(f"protocol {protocol.name} does not use {option}; leave it out")
    sets = []
    for item in dev:
        where, _, split = item.rpartition(":")
        if not where:
            raise InputError(f"--dev: expected DIR:SPLIT, got {item}")
        sets.append((item, read_set(Path(where), split)))
    return Inputs(read_terms(terms), tuple(sets), baselines)


def _show(cell: Cell, protocol: Protocol, *, json_: bool) -> None:
    """Every line and contrast, for machines or for people."""
    from hplus_lab.cell import contrasts, macro
    from hplus_lab.protocol import METRICS

    rows: dict[str, dict[str, Any]] = {}
    key = protocol.metric.replace("@", "")
    for line in cell.lines.values():
        spread = macro([cell], line.name)
        figures = {key: spread.mean, "low": spread.low, "high": spread.high}
        rows[line.name] = {**figures, **vars(line.cost), **line.facts}
    found = contrasts([cell], protocol.planned())
    if json_:
        print_json({
            "protocol": protocol.name, "protocol_hash": protocol.hash, "set": cell.task,
            "split": cell.split, "documents": cell.documents, "queries": len(cell.query_ids),
            "model": cell.system, "fingerprint": cell.fingerprint, "terms": cell.terms,
            "data_hash": cell.data_hash, "pool_hash": cell.pool_hash, "lines": rows,
            "contrasts": [
                {"ours": c.ours, "theirs": c.theirs, **vars(d), "p_holm": p} for c, d, p in found
            ],
        })  # fmt: skip
        return
    title = f"{cell.task} {cell.split}, {protocol.name}"
    print_rows(title, len(cell.query_ids), rows, METRICS[protocol.metric], key)
    if any(row.get("degenerate") for row in rows.values()):
        console().print("The pool holds most of the corpus, so it excludes little.", style="yellow")
    for contrast, difference, corrected in found:
        console().print(
            f"{contrast.ours} - {contrast.theirs}: {100 * difference.mean:+.2f} "
            f"({100 * difference.low:+.2f} to {100 * difference.high:+.2f}), "
            f"p {corrected:.4f} after Holm",
            style="bold" if corrected < 0.05 else "grey50",
        )
