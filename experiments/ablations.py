"""What each part of training is worth: variants of one run, on dev data, with paired intervals.

    python experiments/ablations.py experiments/ablations.toml WORK --cache CACHE [--out FOLDER]

The file names a configuration, settings that all runs share, and variants, each a name and the
settings it changes. Every variant is trained into WORK/<name> unless it is there, so an interrupted
table goes on where it stopped. All are then measured on the same dev queries and compared with the
first variant and with the start. Training itself sees no dev set: the last weights count, so
nothing is chosen on the queries that are reported.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import torch

from hplus import checkpoint
from hplus.evaluate.statistics import paired_difference
from hplus.train import run
from hplus.train.config import Config, read_config
from hplus.train.distributed import World
from hplus.train.student import make_student
from hplus.train.validation import measure
from hplus.types import F64

Values = dict[str, dict[str, F64]]
"""nDCG@10 of every query by line ("16x128", "global", …) and set."""


def trained(config: Path, changes: list[str], out: Path, cache: Path) -> Path:
    """The checkpoint of one variant; trained now if it is not there."""
    if not (out / "config.json").exists():
        command = [sys.executable, "-m", "hplus", "train", "stage2", str(config)]
        command += [f"--set={change}" for change in changes]
        command += ["--cache", str(cache), "--threads", "1", "--out", str(out)]
        print(f"{out.name}: {' '.join(changes)}", flush=True)
        subprocess.run(command, check=True)
    return out


def measured(source: str, settings: Config, cache: Path) -> Values:
    """A checkpoint on the dev sets of a configuration."""
    student = make_student(checkpoint.load(source, device="cpu"), settings, 2)
    reader = run.make_reader(student, settings, cache, World())
    values: Values = {}
    for pool in run.make_pools(student, settings, reader):
        for line, own in measure(student, pool, settings.dev).items():
            values.setdefault(line, {})[pool.name] = own
    return values


def row_of(name: str, found: Values, others: dict[str, Values]) -> dict[str, object]:
    """Macro of every line, and its difference from the same line of the others."""
    lines = {
        line: round(100 * sum(float(own.mean()) for own in sets.values()) / len(sets), 2)
        for line, sets in found.items()
    }
    row: dict[str, object] = {"variant": name, **lines}
    for other, theirs in others.items():
        differences = {line: paired_difference(found[line], theirs[line]) for line in found}
        row[f"minus_{other}"] = {
            line: [round(100 * value, 2) for value in (own.mean, own.low, own.high)]
            for line, own in differences.items()
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = tomllib.loads(options.file.read_text("utf-8"))
    config, shared = Path(table["config"]), table["shared"]
    settings = read_config(config, shared)
    found = {"start": measured(settings.student.start, settings, options.cache)}
    rows = [row_of("start", found["start"], {})]
    for variant in table["variant"]:
        name, changes = variant["name"], [*shared, *variant["set"], "dev.sets=[]"]
        folder = trained(config, changes, options.work / name, options.cache)
        found[name] = measured(str(folder), settings, options.cache)
        others = {own: found[own] for own in ("start", table["variant"][0]["name"]) if own != name}
        rows.append(row_of(name, found[name], others))
        print(json.dumps(rows[-1]), flush=True)
        if options.out:  # what is known so far: a table takes an hour
            text = "\n".join(json.dumps(row) for row in rows) + "\n"
            (options.out / f"{options.file.stem}.jsonl").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
