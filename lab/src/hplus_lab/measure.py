"""One cell, or a whole table of them: protocols x systems x sets, resumable, one cell a file.

`config.py` reads what is to be run. A cell that is finished is not run again; what it depends on is
in its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hplus.errors import InputError
from hplus.evaluate.bench import Bench
from hplus.evaluate.data import RetrievalSet, data_hash, read_beir, sample
from hplus.model import HPlus
from hplus.progress import show_progress
from hplus_lab import cell as cells
from hplus_lab.cache import hash_of, write_json
from hplus_lab.cell import Cell
from hplus_lab.clock import EDITION, Clock, Times
from hplus_lab.config import Config, System
from hplus_lab.experiment import Experiment, Inputs, needs_terms
from hplus_lab.kinds import KINDS
from hplus_lab.line import Line
from hplus_lab.protocol import Protocol
from hplus_lab.protocols import load


@dataclass(frozen=True)
class Task:
    """A set by its name in tables, and the split whose judgements count."""

    name: str
    split: str
    data: RetrievalSet


def measure(
    system: System,
    protocol: Protocol,
    task: Task,
    cache: Path,
    inputs: Inputs,
    *,
    limit: int = 0,
    device: str | None = None,
) -> tuple[Cell, Times]:
    """One cell and its times. Both are kept in cache/cells and read from there the next time."""
    data = sample(task.data, protocol.sample, protocol.seeds[0])
    data = sample(data, limit, protocol.seeds[0])
    model = system.load(protocol.window, device)
    path = cache / "cells" / _name(system, protocol, task.name, model, data, inputs)
    times_path = path.with_suffix(".times")
    times = _read_times(times_path)
    if path.exists() and times is not None:
        return cells.read(path), times
    terms = inputs.terms if protocol.boundaries == "model+terms" else None
    experiment = Experiment(Bench(model, data, cache, terms), protocol, inputs)
    clock, lines, times = Clock(data.documents), {}, {}
    with show_progress(f"{protocol.name}, {task.name}, lines", None) as shown:
        for line in KINDS[protocol.kind].lines(experiment):
            times[line.name] = clock.times(line)
            lines[line.name] = Line(line.name, line.values, line.cost, line.at, line.facts)
            shown.advance(1)
    if not path.exists():  # where only the times were missing, the cell stays as it is
        cells.write(path, _cell(system, task, experiment, lines))
    write_json(times_path, {"edition": EDITION, "times": times})
    return cells.read(path), times


def _cell(system: System, task: Task, x: Experiment, lines: dict[str, Line]) -> Cell:
    """Lines with the names of all that made them."""
    bench, protocol = x.bench, x.protocol
    return Cell(
        protocol.name,
        protocol.hash,
        system.name,
        bench.model.fingerprint,
        bench.terms.fingerprint if bench.terms is not None else "",
        task.name,
        task.split,
        len(bench.data.documents),
        tuple(bench.data.query_ids),
        data_hash(bench.data),
        x.candidates_hash(KINDS[protocol.kind].candidates(x)),
        lines,
    )


def _read_times(path: Path) -> Times | None:
    """Times that cannot be read, or are of an older edition, are taken again."""
    try:
        table = json.loads(path.read_text())
        return dict(table["times"]) if table["edition"] == EDITION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _name(
    system: System,
    protocol: Protocol,
    task: str,
    model: HPlus,
    data: RetrievalSet,
    inputs: Inputs,
) -> str:
    """A cell's file: what a person looks for, then a hash of all it depends on."""
    kind = KINDS[protocol.kind]
    made_from = [str(cells.FORMAT), str(kind.edition), protocol.hash, system.name]
    made_from += [json.dumps(system.settings, sort_keys=True), model.fingerprint, data_hash(data)]
    made_from += check_inputs(protocol, model, inputs)
    readable = re.sub(r"[^\w.-]+", "-", f"{protocol.name}-{task}-{system.name}")
    return f"{readable}-{hash_of(made_from)}.json"


def check_inputs(protocol: Protocol, model: HPlus, inputs: Inputs) -> list[str]:
    """Hashes of what a cell depends on beside model and set; what is missing is reported before
    anything is encoded."""
    if protocol.boundaries != "model+terms":
        terms = ""
    elif inputs.terms is None:
        raise InputError(needs_terms(protocol))
    else:
        terms = inputs.terms.fingerprint
    return [terms, *KINDS[protocol.kind].inputs(protocol, model, inputs)]


def run_config(
    config: Config,
    data: Path,
    cache: Path,
    inputs: Inputs,
    note: Callable[[str], None],
    device: str | None = None,
) -> Iterator[tuple[Protocol, System, list[Cell], dict[str, Times]]]:
    """Every protocol and system of a config, all its sets; dev sets are those of the config."""
    read: dict[str, RetrievalSet] = {}

    def task(name: str) -> Task:
        folder, split = name.split(":")
        if name not in read:
            read[name] = read_beir(data / folder, split)
        return Task(folder, split, read[name])

    protocols = [load(name) for name in config.protocols]
    dev = tuple((name, task(name).data) for name in config.dev)
    inputs = Inputs(inputs.terms, dev, inputs.baselines)
    for protocol, system in product(protocols, config.systems):
        check_inputs(protocol, system.load(protocol.window, device), inputs)
    for protocol in protocols:
        measured: list[Cell] = []
        for system in config.systems:
            own, spent = [], {}
            for name in config.sets:
                note(f"{protocol.name}, {system.name}, {name}")
                cell, times = measure(
                    system, protocol, task(name), cache, inputs, limit=config.limit, device=device
                )
                own.append(cell)
                spent[cell.task] = times
            measured += own
            if protocol.kind == "shared-pool":
                cells.check_shared(measured)
            yield protocol, system, own, spent
