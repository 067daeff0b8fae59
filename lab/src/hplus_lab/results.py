"""A folder of results: two files for machines, from which pages and plots are made.

    FOLDER/summary.json    every figure, and the text of every protocol
    FOLDER/times.json      what depends on the machine, and is nowhere else
    FOLDER/report.md       both to read (`report.py`)
    FOLDER/times.md

The same cells give the same bytes, but for the times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hplus.errors import InputError
from hplus_lab.cache import write
from hplus_lab.cell import rounded
from hplus_lab.clock import Times
from hplus_lab.summary import Summary, from_json, to_json

FORMAT = 3
AllTimes = Mapping[str, Mapping[str, Mapping[str, Times]]]
"""Protocol -> system -> task -> line -> measure -> value."""


@dataclass(frozen=True)
class Findings:
    """All that a config has measured; seen, languages: as in `macros.groups`."""

    name: str
    summaries: Sequence[Summary]
    times: AllTimes
    seen: Sequence[str] = ()
    languages: Mapping[str, str] | None = None


def write_results(folder: Path, results: Findings) -> None:
    """summary.json and times.json."""
    names = [summary.protocol.name for summary in results.summaries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"protocols named more than once: {twice}; give all cells of one together")
    write(folder / "times.json", _json(results.times))
    summary = {
        "format": FORMAT,
        "config": results.name,
        "seen": list(results.seen),
        "languages": dict(results.languages or {}),
        "protocols": [to_json(summary) for summary in results.summaries],
    }
    write(folder / "summary.json", _json(summary))


def read_results(folder: Path) -> Findings:
    """What `write_results` has written."""
    path = folder / "summary.json"
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        times = json.loads((folder / "times.json").read_text(encoding="utf-8"))
        if table["format"] != FORMAT:
            raise InputError(
                f"{path}: expected format {FORMAT}, got {table['format']}; run the config again"
            )
        seen, languages = table["seen"], table["languages"]
        summaries = [from_json(own, str(path), seen, languages) for own in table["protocols"]]
        return Findings(table["config"], summaries, times, seen, languages)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} does not hold the results of `hplus-lab run`: summary.json or times.json "
            f"is missing or damaged ({error})"
        ) from None


def _json(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(_six_places(table), ensure_ascii=False, indent=1) + "\n").encode()


def _six_places(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _six_places(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_six_places(inner) for inner in value]
    return rounded(value) if isinstance(value, float) else value
