"""Results as pages for people: report.md, and times.md for what depends on the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hplus_lab.cache import write
from hplus_lab.markdown import TextTable, escaped
from hplus_lab.protocol import METRICS
from hplus_lab.results import Findings, read_results
from hplus_lab.summary import Summary
from hplus_lab.tables import (
    MISSING,
    NONE,
    contrasts_table,
    degenerate,
    facts_table,
    leads_table,
    paper_table,
    results_table,
)
from hplus_lab.verdicts import sentences

_READING = (
    "Points of 100 of the measure that a section names: a column a task, then means in which every "
    "task weighs the same. Intervals are 95 % of a bootstrap over queries, within tasks, not "
    "corrected. p after Holm's correction for the contrasts of a family, and for all contrasts of "
    "the table: bold where the latter is below .05. Vectors and KB (1,000 bytes) are a document's, "
    "query units and millions of multiplications a query's. "
    f"{MISSING}: a task did not run, and no mean is taken without it; {NONE}: not counted. "
    "Figures of two protocols are not compared. What each line takes on disk, the rate of encoding "
    "and the times of scoring are in times.md."
)
_TIMING = (
    "What a line has on disk is the same everywhere; times are of this machine and this run, "
    "whatever else it was doing. Means in which every task weighs the same, then P50 / P95 of each "
    "task. KB on disk (1,000 bytes a document): the line's views in the file of an index, with "
    "importance, spans and offsets; an index has 28 bytes a document besides, and lists of units "
    "where they are many. documents/s: encoded as the checkpoint's recipe has it, all views in one "
    "pass, on all cores. P50 and P95: milliseconds to score one query on one thread, without "
    "encoding it, of 50 queries. Global, lexical and systems that give candidates meet every "
    "document, the others their candidates."
)
_LEADS = (
    "The same line of two systems, paired query by query, where they differ at all. These were not "
    "planned as contrasts; p after Holm's correction for all lines of the table, bold below .05."
)
_MEASURES = {
    "kb_on_disk": "KB on disk",
    "documents_a_second": "documents/s",
    "p50_ms": "P50 ms",
    "p95_ms": "P95 ms",
}


def write_pages(folder: Path) -> None:
    """report.md and times.md from the files for machines."""
    results = read_results(folder)
    write(folder / "report.md", _joined(_report(results)))
    write(folder / "times.md", _joined(_times(results)))


def _report(results: Findings) -> list[str]:
    """What was measured, then a section a protocol."""
    return [
        f"# {escaped(results.name)}: results",
        escaped(_READING),
        "## What was measured",
        _systems(results.summaries).markdown(),
        _sets(results.summaries).markdown(),
        *(part for summary in results.summaries for part in _section(summary)),
    ]


def _section(summary: Summary) -> list[str]:
    protocol = summary.protocol
    parts = [
        f"## {escaped(protocol.name)}",
        escaped(protocol.question),
        f"{METRICS[protocol.metric]}; protocol {escaped(protocol.name)}, "
        f"hash {protocol.hash[:12]}.",
        results_table(summary).markdown(),
    ]
    if summary.outcomes:
        parts += ["### Contrasts", contrasts_table(summary).markdown(), _items(sentences(summary))]
    taken = sum(found.difference is not None for found in summary.outcomes)
    planned = len(protocol.planned()) * len(summary.systems)
    if taken < planned:
        parts.append(
            f"{taken} of the {planned} contrasts of the protocol could be taken: the others lack "
            "a line, or a task of it. Holm's correction is for those that were."
        )
    if (leads := leads_table(summary)) is not None:
        parts += ["### System against system", leads.markdown(), _LEADS]
    if (facts := facts_table(summary)) is not None:
        fusion = protocol.kind == "fusion"
        parts += ["### Weights" if fusion else "### Candidates", facts.markdown()]
    if whole := degenerate(summary):
        parts.append(_items(whole))
    if (there := paper_table(summary)) is not None:
        parts += ["### In the paper (another model: Qwen3-0.6B)", there.markdown()]
        if protocol.sample:
            parts.append(f"Ours on {protocol.sample:,} queries a task at most.")
    return parts


def _systems(summaries: Sequence[Summary]) -> TextTable:
    rows: dict[tuple[str, ...], dict[str, None]] = {}
    for summary in summaries:
        for source in summary.sources:
            terms = source["terms"][:12] or NONE
            key = (source["system"], source["fingerprint"][:12], terms)
            rows.setdefault(key, {})[summary.protocol.name] = None
    columns = ["system", "fingerprint", "terms", "protocols"]
    return TextTable(columns, [[*key, ", ".join(used)] for key, used in rows.items()], 4)


def _sets(summaries: Sequence[Summary]) -> TextTable:
    rows: dict[tuple[str, ...], dict[str, None]] = {}
    for summary in summaries:
        for source in summary.sources:
            sizes = (f"{source['documents']:,}", f"{source['queries']:,}", source["data_hash"][:12])
            key = (source["task"], source["split"], *sizes)
            rows.setdefault(key, {})[summary.protocol.name] = None
    columns = ["set", "split", "documents", "queries", "data", "protocols"]
    return TextTable(columns, [[*key, ", ".join(used)] for key, used in rows.items()], 2)


def _times(results: Findings) -> list[str]:
    """A table a protocol, a row a line: means over tasks, then P50 and P95 of each task."""
    parts = [f"# {escaped(results.name)}: files and times", escaped(_TIMING)]
    for protocol, systems in results.times.items():
        tasks = list(dict.fromkeys(task for own in systems.values() for task in own))
        rows = [
            [system, line, *_times_of([own.get(task, {}).get(line) for task in tasks])]
            for system, own in systems.items()
            for line in dict.fromkeys(line for found in own.values() for line in found)
        ]
        table = TextTable(["system", "line", *_MEASURES.values(), *tasks], rows, 2)
        parts += [f"## {escaped(protocol)}", table.markdown()]
    return parts


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


def _items(found: Sequence[str]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in found)


def _joined(parts: Sequence[str]) -> bytes:
    return ("\n\n".join(parts) + "\n").encode()
