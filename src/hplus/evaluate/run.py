"""A whole table from a config: protocols x systems x sets, resumable, one cell a file.

`config.py` reads what is to be run. A cell that is finished is not run again; what it depends on is
in its name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from hplus.checkpoint import projection_digest
from hplus.errors import InputError
from hplus.evaluate import results
from hplus.evaluate.baselines import available, cut_at, named
from hplus.evaluate.beir import Bench
from hplus.evaluate.config import Config, System
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.experiments import run, tune
from hplus.evaluate.lab import Lab, Line
from hplus.evaluate.others import READS_PAIRS, other
from hplus.evaluate.pools import pool_hash
from hplus.evaluate.protocol import Protocol, load
from hplus.evaluate.timing import TIMED, Times, times
from hplus.model import HPlus
from hplus.progress import show_progress
from hplus.units.terms import Terms

# Raised when an experiment counts differently from before: cells of the old way are not taken up.
EDITIONS = {"ablations": 3, "views": 2, "exact-count": 2, "budgets": 3, "shared-pool": 2}


def sample(data: RetrievalSet, count: int, seed: int) -> RetrievalSet:
    """At most `count` of the queries, drawn by a seed, in the order of the file; 0: all."""
    if not count or count >= len(data.queries):
        return data
    rows = np.sort(np.random.default_rng(seed).permutation(len(data.queries))[:count])
    return replace(
        data,
        query_ids=[data.query_ids[row] for row in rows],
        queries=[data.queries[row] for row in rows],
    )


def measure(
    system: System,
    protocol: Protocol,
    task: str,
    data: RetrievalSet,
    cache: Path,
    *,
    split: str = "test",
    terms: Terms | None = None,
    dev: Callable[[], list[tuple[str, RetrievalSet]]] = list,
    baselines: Path | None = None,
    limit: int = 0,
    device: str | None = None,
) -> tuple[results.Cell, Times]:
    """One cell and its times. Finished cells are kept in cache/cells and read again from there."""
    data = sample(data, protocol.sample, protocol.seeds[0])
    data = sample(data, limit, protocol.seeds[0])
    model = system.load(protocol.window, device)
    terms = terms if protocol.boundaries == "model+terms" else None
    path = cache / "cells" / _cell_name(system, protocol, task, model, data, terms, dev)
    times_path = path.with_suffix(".times")
    spent = _read_times(times_path)
    if not path.exists() or spent is None:
        others = [name for name in (*protocol.sources, *protocol.rankers) if name != "global"]
        _check_inputs(protocol, model, terms, dev())
        _check_others(protocol, others, baselines)
        lab = Lab(Bench(model, data, cache, terms), protocol)
        own = {
            name: other(
                cut_at(named(name), protocol.window),
                data,
                folder=baselines,
                cache=cache / "baselines",
                format=protocol.format,
                threads=model.threads,
            )
            for name in others
        }
        if not path.exists():
            alphas = {}
            if protocol.kind == "fusion":
                seed = protocol.seeds[0]
                chosen = (sample(found, protocol.dev_sample, seed) for _, found in dev())
                some = (Bench(model, found, cache, terms) for found in chosen)
                alphas = tune(list(some), protocol)
            lines = {}
            with show_progress(f"{protocol.name}, {task}, lines", None) as shown:
                for line in run(lab, alphas, own):
                    lines[line.name] = line
                    shown.advance(1)
            results.write(path, _cell(system, task, split, lab, lines))
        own_times = times(lab, own)
        spent = {line: own_times[line] for line in results.read(path).lines}
        results.write_json(times_path, {"edition": TIMED, "times": spent})
    return results.read(path), spent


def _read_times(path: Path) -> Times | None:
    """Times that cannot be read, or are of an older edition, are taken again."""
    try:
        table = json.loads(path.read_text())
        return dict(table["times"]) if table["edition"] == TIMED else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _cell(system: System, task: str, split: str, lab: Lab, lines: dict[str, Line]) -> results.Cell:
    """Lines with the names of all that made them."""
    bench, protocol = lab.bench, lab.protocol
    return results.Cell(
        protocol.name,
        protocol.hash,
        system.name,
        bench.model.fingerprint,
        bench.terms.fingerprint if bench.terms is not None else "",
        task,
        split,
        len(bench.data.documents),
        tuple(bench.data.query_ids),
        results.data_hash(bench.data),
        pool_hash(bench, list(lab.pool)),
        lines,
    )


def _cell_name(
    system: System,
    protocol: Protocol,
    task: str,
    model: HPlus,
    data: RetrievalSet,
    terms: Terms | None,
    dev: Callable[[], list[tuple[str, RetrievalSet]]],
) -> str:
    """A cell's file: what a person looks for, then a hash of all it depends on."""
    used = terms.fingerprint if terms is not None else ""
    settings = json.dumps(system.settings, sort_keys=True)
    key = [protocol.hash, system.name, settings, model.fingerprint, used, results.data_hash(data)]
    if protocol.kind == "fusion":
        key += [results.data_hash(found) for _, found in dev()]
    if protocol.kind == "projection":
        key.append(projection_digest(model.checkpoint.source) or "")
    if protocol.kind in EDITIONS:
        key.append(str(EDITIONS[protocol.kind]))
    if protocol.format != "f32":
        key.append("scored as stored")
    hashed = hashlib.sha256("\n".join(key).encode()).hexdigest()[:24]
    readable = re.sub(r"[^\w.-]+", "-", f"{protocol.name}-{task}-{system.name}")
    return f"{readable}-{hashed}.json"


def _check_inputs(
    protocol: Protocol,
    model: HPlus,
    terms: Terms | None,
    dev: list[tuple[str, RetrievalSet]],
) -> None:
    """What is missing is told before anything is encoded."""
    if protocol.boundaries == "model+terms" and terms is None:
        raise InputError(
            f"protocol {protocol.name} is CRF with terminology: give --terms FILE, one term a line"
        )
    if protocol.kind == "projection" and projection_digest(model.checkpoint.source) is None:
        raise InputError(
            f"protocol {protocol.name}: {model.recipe.name} has no token projection; "
            "experiments/train_projection.py trains one"
        )
    if protocol.kind == "fusion" and not dev:
        raise InputError("fusion weights are tuned on dev data: give --dev DIR:SPLIT")


def _check_others(protocol: Protocol, others: list[str], baselines: Path | None) -> None:
    for name in others:
        if named(name).kind == "cross-encoder":
            raise InputError(f"protocol {protocol.name}: {READS_PAIRS.format(name)}")
        there = available(named(name), folder=baselines)
        if not there:
            raise InputError(f"protocol {protocol.name}: {there.missing}")


def run_config(
    config: Config,
    data: Path,
    cache: Path,
    terms: Terms | None,
    note: Callable[[str], None],
    baselines: Path | None = None,
    device: str | None = None,
) -> Iterator[tuple[Protocol, System, list[results.Cell], dict[str, Times]]]:
    """Every protocol and system of a config, all its sets."""
    read: dict[str, RetrievalSet] = {}

    def at(name: str) -> RetrievalSet:
        if name not in read:
            folder, split = name.split(":")
            read[name] = read_beir(data / folder, split)
        return read[name]

    protocols, dev = list(map(load, config.protocols)), [(item, at(item)) for item in config.dev]
    for protocol, system in product(protocols, config.systems):
        _check_inputs(protocol, system.load(protocol.window, device), terms, dev)
    for protocol in protocols:
        first: dict[str, results.Cell] = {}
        for system in config.systems:
            cells, spent = [], {}
            for name in config.sets:
                note(f"{protocol.name}, {system.name}, {name}")
                task, split = name.split(":")
                cell, own = measure(
                    system,
                    protocol,
                    task,
                    at(name),
                    cache,
                    split=split,
                    terms=terms,
                    dev=lambda: dev,
                    baselines=baselines,
                    limit=config.limit,
                    device=device,
                )
                cells.append(cell)
                spent[task] = own
                if protocol.kind == "shared-pool":
                    results.check_shared([first.setdefault(task, cell), cell])
            yield protocol, system, cells, spent
