"""A whole report from cells: pages for people, a summary for machines, pictures, times apart.

    FOLDER/report.md       the same page twice
    FOLDER/report.html     in one file, nothing fetched
    FOLDER/summary.json    every figure, and the text of every protocol
    FOLDER/plots/          SVG and PNG
    FOLDER/times.json      what depends on the machine, and is nowhere else
    FOLDER/times.md        the same to read
    FOLDER/cells/          where asked for: the cells, from which `rewrite` makes the pages again

All but the times are the same bytes for the same cells.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus.evaluate import plots, results
from hplus.evaluate import protocol as protocols
from hplus.evaluate.against import against_table, leads
from hplus.evaluate.page import Block, Heading, Items, Picture, Table, html_page, markdown
from hplus.evaluate.protocol import Contrast, Protocol
from hplus.evaluate.results import Cell
from hplus.evaluate.statistics import Interval
from hplus.evaluate.tables import (
    IN_PAPER,
    MISSING,
    NONE,
    Summary,
    contrasts_table,
    degenerate,
    facts_table,
    in_paper,
    paper_table,
    results_table,
    summarise,
)
from hplus.evaluate.verdicts import sentences

FORMAT = 2
Groups = Sequence[tuple[Protocol, Mapping[str, Sequence[Cell]]]]
# Protocol -> system -> task -> line -> measure -> value.
Times = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]]
_READING = (
    "nDCG@10 in points of 100: a column a task, then means in which every task weighs the same. "
    "Intervals are 95 % of a bootstrap over queries, within tasks; p after Holm's correction for "
    "the contrasts of a family, bold below .05. Vectors and KB (1,000 bytes) are a document's, "
    "query units and millions of multiplications a query's. "
    f"{MISSING}: a task did not run, and no mean is taken without it; {NONE}: not counted. "
    "Figures of two protocols are not compared. What each line takes on disk, the rate of encoding "
    "and the times of scoring are in times.md."
)

_MEASURES = {
    "kb_on_disk": "KB on disk",
    "documents_a_second": "documents/s",
    "p50_ms": "P50 ms",
    "p95_ms": "P95 ms",
}
_TIMING = (
    "What a line has on disk is the same everywhere; times are of this machine and this run, "
    "whatever else it was doing. Means in which every task weighs the same, then P50 / P95 of each "
    "task. KB on disk (1,000 bytes a document): the line's views in the file of an index, with "
    "importance, spans and offsets; an index has 28 bytes a document besides, and lists of units "
    "where they are many. documents/s: encoded as the checkpoint's recipe has it, all views in one "
    "pass, on all cores. P50 and P95: milliseconds to score one query on "
    "one thread, without encoding it, of 50 queries. Global, lexical and systems that give "
    "candidates meet every document, the others their candidates. Lines that read and compute the "
    "same are timed once."
)
_LEADS = (
    "The same line of two systems, paired query by query, where they differ at all; bold where the "
    "interval is clear of zero. These were not planned as contrasts, and no correction is made for "
    "their number."
)


def write_report(
    folder: Path,
    config_name: str,
    groups: Groups,
    times: Times,
    seen: Sequence[str],
    *,
    tasks: Sequence[str] = (),
    languages: Mapping[str, str] | None = None,
    cells: bool = False,
) -> None:
    """All files of a report.

    groups: each protocol with the cells of its systems. tasks: those that every protocol should
    have; what lacks is shown as missing. seen, languages: see `macros.groups`. cells: keep the
    figures of every query too, for `rewrite`.
    """
    names = [protocol.name for protocol, _ in groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"protocols named more than once: {twice}; give all cells of one together")
    summaries = [
        summarise(
            protocol,
            [cell for own in systems.values() for cell in own],
            seen,
            tasks=tasks,
            languages=languages,
        )
        for protocol, systems in groups
    ]
    pictures = {
        summary.protocol.name: [
            picture
            for system in summary.systems
            for picture in plots.draw(
                summary, f"{file_name(summary.protocol.name)}-{file_name(system)}", system
            )
        ]
        for summary in summaries
    }
    blocks = page(config_name, summaries, pictures)
    for picture in [picture for own in pictures.values() for picture in own]:
        _write(folder / "plots" / f"{picture.name}.svg", picture.svg.encode())
        _write(folder / "plots" / f"{picture.name}.png", picture.png)
    if cells:
        for summary in summaries:
            for cell in summary.cells:
                results.write(_cell_path(folder, cell.protocol, cell.task, cell.system), cell)
    _write(folder / "times.json", _json(times))
    _write(folder / "times.md", markdown(times_page(config_name, times)).encode())
    _write(folder / "report.md", markdown(blocks).encode())
    _write(folder / "report.html", html_page(f"{config_name}: results", blocks).encode())
    summary_json = {
        "format": FORMAT,
        "config": config_name,
        "tasks": list(tasks),
        "seen": list(seen),
        "languages": dict(languages or {}),
        "protocols": [machine_readable(summary) for summary in summaries],
    }
    _write(folder / "summary.json", _json(summary_json))


def rewrite(folder: Path) -> None:
    """The pages, pictures and summary again, from the cells that were kept in the folder."""
    path = folder / "summary.json"
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        times = json.loads((folder / "times.json").read_text(encoding="utf-8"))
        if table["format"] != FORMAT:
            raise InputError(f"{path} has the format {table['format']}, not {FORMAT}; run again")
        name, seen = table["config"], table["seen"]
        options = {key: table[key] for key in ("tasks", "languages")}
        entries = [(e["specification"], e["cells"]) for e in table["protocols"]]
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} is no folder that `hplus evaluate run` wrote: summary.json or times.json is "
            f"missing or damaged ({error})"
        ) from None
    if not (folder / "cells").is_dir():
        raise InputError(f"{folder} has no cells; run the config again without --no-cells")
    groups = []
    for specification, measured in entries:
        protocol = protocols.parse(specification, str(path))
        systems: dict[str, list[Cell]] = {}
        for entry in measured:
            cell = _read_cell(folder, protocol, entry)
            systems.setdefault(cell.system, []).append(cell)
        groups.append((protocol, systems))
    write_report(folder, name, groups, times, seen, **options)


def page(
    name: str, summaries: Sequence[Summary], pictures: Mapping[str, Sequence[Picture]]
) -> list[Block]:
    """The report: what was measured, then a section a protocol."""
    blocks: list[Block] = [
        Heading(1, f"{name}: results"),
        _READING,
        Heading(2, "What was measured"),
    ]
    blocks += [_systems_table(summaries), _sets_table(summaries)]
    for summary in summaries:
        blocks += _section(summary, pictures.get(summary.protocol.name, ()))
    return blocks


def times_page(name: str, times: Times) -> list[Block]:
    """A table a protocol, a row a line: means over tasks, then P50 and P95 of each task."""
    blocks: list[Block] = [Heading(1, f"{name}: files and times"), _TIMING]
    for protocol, systems in times.items():
        tasks = list(dict.fromkeys(task for own in systems.values() for task in own))
        rows = [
            [system, line, *_times_of([own.get(task, {}).get(line) for task in tasks])]
            for system, own in systems.items()
            for line in dict.fromkeys(line for found in own.values() for line in found)
        ]
        columns = ["system", "line", *_MEASURES.values(), *tasks]
        blocks += [Heading(2, protocol), Table(columns, rows, 2)]
    return blocks


def _times_of(found: Sequence[Mapping[str, float] | None]) -> list[str]:
    """Of one line on every task."""
    whole = [own for own in found if own is not None]
    means = [
        f"{sum(own[measure] for own in whole) / len(whole):.2f}"
        if len(whole) == len(found)
        else MISSING
        for measure in _MEASURES
    ]
    each = [
        MISSING if own is None else f"{own['p50_ms']:.2f} / {own['p95_ms']:.2f}" for own in found
    ]
    return means + each


def machine_readable(summary: Summary) -> dict[str, Any]:
    """Every figure of a protocol, from 0 to 1, rounded to six places; None: missing."""
    protocol = summary.protocol
    keys = ("system", "task", "split", "documents", "fingerprint", "terms", "data_hash")
    return {
        "name": protocol.name,
        "hash": protocol.hash,
        "specification": str(protocol),
        "macros": summary.named,
        "cells": [
            {key: getattr(cell, key) for key in (*keys, "pool_hash")}
            | {"queries": len(cell.query_ids)}
            for cell in summary.cells
        ],
        "lines": [
            {
                "system": row.system,
                "line": row.line,
                "tasks": row.tasks,
                "macros": {name: _interval(found) for name, found in row.macros.items()},
                "cost": None if row.cost is None else asdict(row.cost),
                "facts": row.facts,
            }
            for row in summary.rows
        ],
        "contrasts": [
            {
                "system": tested.system,
                "ours": tested.contrast.ours,
                "theirs": tested.contrast.theirs,
                "family": tested.contrast.family,
                "difference": _interval(tested.difference),
                "holm": tested.holm,
                "tasks": {task: _interval(found) for task, found in tested.by_task.items()},
                "paper": _paper(summary, tested.contrast),
            }
            for tested in summary.contrasts
        ],
        "against": [asdict(lead) for lead in leads(summary)],
        "sentences": sentences(summary),
    }


def file_name(name: str) -> str:
    """A name as part of a file's name; what had to change is told apart by its hash.

    >>> file_name("hplus-mini"), file_name("a/b")
    ('hplus-mini', 'a-b-c14cdd')
    """
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip(".-")
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _section(summary: Summary, pictures: Sequence[Picture]) -> list[Block]:
    protocol = summary.protocol
    blocks: list[Block] = [
        Heading(2, protocol.name),
        protocol.question,
        f"Protocol {protocol.name}, hash {protocol.hash[:12]}.",
        results_table(summary),
    ]
    if summary.contrasts:
        blocks += [Heading(3, "Contrasts"), contrasts_table(summary), Items(sentences(summary))]
    taken = sum(found.difference is not None for found in summary.contrasts)
    planned = len(protocol.families()) * len(summary.systems)
    if taken < planned:
        blocks.append(
            f"{taken} of the {planned} contrasts of the protocol could be taken: the others lack "
            "a line, or a task of it. Holm's correction is for those that were."
        )
    found = leads(summary)
    if found:
        blocks += [Heading(3, "System against system"), against_table(summary, found), _LEADS]
    facts = facts_table(summary)
    if facts is not None:
        fusion = protocol.kind == "fusion"
        blocks += [Heading(3, "Weights" if fusion else "Candidates"), facts]
    whole = degenerate(summary)
    if whole:
        blocks.append(Items(whole))
    blocks += pictures
    there = paper_table(summary)
    if there is not None:
        blocks += [Heading(3, IN_PAPER), there]
        if protocol.sample:
            blocks.append(f"Ours on {protocol.sample:,} queries a task at most.")
    return blocks


def _systems_table(summaries: Sequence[Summary]) -> Table:
    rows: dict[tuple[str, ...], list[str]] = {}
    for summary in summaries:
        for cell in summary.cells:
            terms = cell.terms[:12] or NONE
            used = rows.setdefault((cell.system, cell.fingerprint[:12], terms), [])
            used += [summary.protocol.name] * (summary.protocol.name not in used)
    columns = ["system", "fingerprint", "terms", "protocols"]
    return Table(columns, [[*key, ", ".join(used)] for key, used in rows.items()], len(columns))


def _sets_table(summaries: Sequence[Summary]) -> Table:
    rows: dict[tuple[str, ...], list[str]] = {}
    for summary in summaries:
        for cell in summary.cells:
            sizes = (f"{cell.documents:,}", f"{len(cell.query_ids):,}", cell.data_hash[:12])
            used = rows.setdefault((cell.task, cell.split, *sizes), [])
            used += [summary.protocol.name] * (summary.protocol.name not in used)
    columns = ["set", "split", "documents", "queries", "data", "protocols"]
    return Table(columns, [[*key, ", ".join(used)] for key, used in rows.items()], 2)


def _interval(found: Interval | None) -> dict[str, float] | None:
    return None if found is None else asdict(found)


def _paper(summary: Summary, contrast: Contrast) -> dict[str, Any] | None:
    there = in_paper(summary, contrast)
    if there is None:
        return None
    source, value = there
    return {"table": source.label, "tasks": len(source.tasks), **asdict(value)}


def _cell_path(folder: Path, protocol: str, task: str, system: str) -> Path:
    names = (file_name(name) for name in (protocol, task, system))
    return folder / "cells" / f"{'_'.join(names)}.json"


def _read_cell(folder: Path, protocol: Protocol, measured: Mapping[str, Any]) -> Cell:
    path = _cell_path(folder, protocol.name, measured["task"], measured["system"])
    if not path.is_file():
        raise InputError(f"{path} is missing; run the config again")
    cell = results.read(path)
    for key in ("fingerprint", "data_hash"):
        if getattr(cell, key) != measured[key]:
            raise InputError(
                f"{path} has the {key} {getattr(cell, key)[:12]}, summary.json {measured[key][:12]}"
                ": they are of two runs; run the config again"
            )
    return cell


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return round(float(value), 6) + 0.0 if isinstance(value, float) else value


def _json(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(_rounded(table), ensure_ascii=False, indent=1) + "\n").encode()


def _write(path: Path, content: bytes) -> None:
    """In one step: a file that is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    draft.write_bytes(content)
    draft.replace(path)
