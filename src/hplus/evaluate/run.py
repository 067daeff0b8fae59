"""A whole table from a config: protocols x systems x sets, resumable, one cell a file.

    name = "baseline"
    data = "../shared/data/eval"        # or --data
    protocols = ["broad-deployed", "dimensional"]
    sets = ["scifact:test", "nfcorpus:test"]
    dev = ["nfcorpus:dev"]              # for what is tuned
    terms = "terms.txt"                 # or --terms
    seen = ["medicalqa"]                # sets whose data the checkpoint has seen

    [[systems]]
    name = "hplus-mini"
    model = "mini"

    [[systems]]
    name = "frozen"
    model = "mini"
    units = "runs"
    importance = "idf"

A cell that is finished is not run again; what it depends on is in its name.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hplus.errors import InputError
from hplus.evaluate import results
from hplus.evaluate.baselines import available, named, scores
from hplus.evaluate.beir import Bench
from hplus.evaluate.cost import latency
from hplus.evaluate.data import RetrievalSet, read_beir
from hplus.evaluate.experiments import run, tune
from hplus.evaluate.lab import Lab
from hplus.evaluate.pools import pool_hash
from hplus.evaluate.protocol import Protocol, load
from hplus.model import HPlus
from hplus.units.terms import Terms


@dataclass(frozen=True)
class System:
    """A model by its name in tables; settings: what is changed of its recipe."""

    name: str
    model: str = "mini"
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self) -> HPlus:
        return HPlus(self.model, long="cut", **self.settings)


@dataclass(frozen=True)
class Config:
    """What `hplus evaluate run` reads."""

    name: str
    protocols: tuple[str, ...]
    systems: tuple[System, ...]
    sets: tuple[str, ...]
    dev: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    data: str = ""
    terms: str = ""
    limit: int = 0
    languages: dict[str, str] = field(default_factory=dict)
    """Of sets that `macros.TASKS` does not know: "en", "zh" …"""


def read_config(path: Path) -> Config:
    """A config, with complaints that name the file."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    known = set(Config.__dataclass_fields__)
    unknown = sorted(set(table) - known)
    if unknown:
        raise InputError(f"{path}: unknown {unknown[0]!r}; known: {', '.join(sorted(known))}")
    for key in ("name", "protocols", "systems", "sets"):
        if not table.get(key):
            raise InputError(f"{path} lacks {key!r}")
    systems = []
    for item in table.pop("systems"):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InputError(f"{path}: a system has a name, this one is {item!r}")
        settings = {k: v for k, v in item.items() if k not in ("name", "model")}
        systems.append(System(item["name"], item.get("model", "mini"), settings))
    lists: dict[str, Any] = {
        key: tuple(table[key]) for key in ("protocols", "sets", "dev", "seen") if key in table
    }
    for name in lists["protocols"]:
        load(name)  # an unknown one fails here, not after an hour
    for name in (*lists["sets"], *lists.get("dev", ())):
        if name.count(":") != 1:
            raise InputError(f"{path}: set {name!r}; FOLDER:SPLIT is expected")
    return Config(**{**table, **lists, "systems": tuple(systems)})


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
) -> tuple[results.Cell, dict[str, float]]:
    """One cell and its times. Finished cells are kept in cache/cells and read again from there."""
    data = sample(data, protocol.sample, protocol.seeds[0])
    data = sample(data, limit, protocol.seeds[0])
    model = system.load()
    if model.recipe.window > protocol.window:
        model = HPlus(system.model, long="cut", **{**system.settings, "window": protocol.window})
    needs_terms = protocol.boundaries == "model+terms"
    used = terms.fingerprint if terms is not None and needs_terms else ""
    settings = json.dumps(system.settings, sort_keys=True)
    key = [protocol.hash, system.name, settings, model.fingerprint, used, results.data_hash(data)]
    if protocol.kind == "fusion":
        key += [results.data_hash(found) for _, found in dev()]
    name = hashlib.sha256("\n".join(key).encode()).hexdigest()[:24]
    readable = re.sub(r"[^\w.-]+", "-", f"{protocol.name}-{task}-{system.name}")
    path = cache / "cells" / f"{readable}-{name}.json"
    times_path = path.with_suffix(".times")
    if path.exists():
        times = json.loads(times_path.read_text()) if times_path.exists() else {}
        return results.read(path), times
    others = [name for name in (*protocol.sources, *protocol.rankers) if name != "global"]
    _check_inputs(protocol, terms, dev(), others, baselines)
    bench = Bench(model, data, cache, terms if needs_terms else None)
    alphas = {}
    if protocol.kind == "fusion":
        sets = dev()
        own = (Bench(model, sample(found, 300, 13), cache, bench.terms) for _, found in sets)
        alphas = tune(list(own), protocol)
    found = {
        name: scores(
            named(name),
            data.queries,
            data.documents,
            folder=baselines,
            cache=cache / "baselines",
            progress=name,
            threads=model.threads,
        )
        for name in others
    }
    lines = {line.name: line for line in run(bench, protocol, alphas, found)}
    lab = Lab(bench, protocol)
    cell = results.Cell(
        protocol.name,
        protocol.hash,
        system.name,
        model.fingerprint,
        used,
        task,
        split,
        len(data.documents),
        tuple(data.query_ids),
        results.data_hash(data),
        pool_hash(bench, list(lab.gate)),
        lines,
    )
    width = protocol.widths[0]
    queries, documents = (
        lab.kept(side, lab.units, width) for side in (bench.queries, bench.documents)
    )
    times = latency(queries, documents, lab.gate)
    path.parent.mkdir(parents=True, exist_ok=True)
    times_path.write_text(json.dumps(times))
    results.write(path, cell)
    return results.read(path), times  # as a later run will read it


def _check_inputs(
    protocol: Protocol,
    terms: Terms | None,
    dev: list[tuple[str, RetrievalSet]],
    others: list[str],
    baselines: Path | None,
) -> None:
    """What is missing is told before anything is encoded."""
    if protocol.boundaries == "model+terms" and terms is None:
        raise InputError(
            f"protocol {protocol.name} is CRF with terminology: give --terms FILE, one term a line"
        )
    if protocol.kind == "fusion" and not dev:
        raise InputError("fusion weights are tuned on dev data: give --dev DIR:SPLIT")
    for name in others:
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
) -> Iterator[tuple[Protocol, System, list[results.Cell], dict[str, dict[str, float]]]]:
    """Every protocol and system of a config, all its sets."""
    read: dict[str, RetrievalSet] = {}

    def at(name: str) -> RetrievalSet:
        if name not in read:
            folder, split = name.split(":")
            read[name] = read_beir(data / folder, split)
        return read[name]

    for protocol in map(load, config.protocols):
        for system in config.systems:
            cells, times = [], {}
            for name in config.sets:
                note(f"{protocol.name}, {system.name}, {name}")
                task, split = name.split(":")
                cell, spent = measure(
                    system,
                    protocol,
                    task,
                    at(name),
                    cache,
                    split=split,
                    terms=terms,
                    dev=lambda: [(item, at(item)) for item in config.dev],
                    baselines=baselines,
                    limit=config.limit,
                )
                cells.append(cell)
                times[task] = spent
            yield protocol, system, cells, times
