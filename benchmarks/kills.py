"""`hplus index` killed again and again: what is lost each time, and is the index right in the end?

    python benchmarks/kills.py SCIFACT --folder /tmp/kills --out docs/results/kills.jsonl

Abstracts are indexed with the real model by the command itself. It gets SIGKILL after a random
amount of work, is started again, and so on until it ends; then the index is compared with one that
was made in one go, and a new one is begun, until there have been 200 kills. After each of them the
index is opened and verified, and every document in it compared. Work is the processor time of the
command, so that others on the machine do not count: what is lost is that since the last change was
confirmed, or since the start of the program. The bar: at most five seconds. Half an hour.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hplus.index import Index
from hplus.storage.segment import read

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Command:
    """`hplus index` while it runs: its work so far, and the work at its last confirmed change."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        self.noted = self._note()
        self.work = self.confirmed = 0.0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hplus", "index", str(source), str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _note(self) -> bytes:
        try:
            return (self.folder / "confirmed").read_bytes()
        except FileNotFoundError:
            return b""

    def look(self) -> None:
        """See how far it is."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
        self.work = (int(stat[11]) + int(stat[12])) / TICKS
        if (noted := self._note()) != self.noted:
            self.noted, self.confirmed = noted, self.work

    def run(self, most: float) -> bool:
        """Let it work that long, then kill it; whether it had ended before."""
        while self.process.poll() is None:
            self.look()
            if self.work >= most:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
                return False
            time.sleep(0.01)
        if self.process.returncode:
            raise SystemExit(f"hplus index ended with {self.process.returncode}")
        return True


def texts(folder: Path) -> dict[str, str]:
    """Id and text of every document, after a check of everything; none if there is no index yet."""
    if not (folder / "catalogue.sqlite").exists():
        return {}
    try:
        index = Index.open(folder)
    except Exception as error:
        if "is not the catalogue" in str(error):  # killed while it was created
            return {}
        raise
    with index:
        if problems := index.verify().problems:
            raise SystemExit(f"damaged: {problems}")
        places = [np.empty(0, np.int64)]
        snapshot = index.engine.snapshot
        for part, first in zip(snapshot.parts, snapshot.first, strict=False):
            places.append(first + np.flatnonzero(part.alive))
        return {row.id: row.text for row in index.engine.rows(np.concatenate(places))}


def difference(folder: Path, reference: Path) -> float:
    """The largest difference of a number of a unit vector; another document ends the program."""
    with Index.open(folder) as one, Index.open(reference) as other:
        ids = sorted(texts(reference))
        most = 0.0
        for id_ in ids:
            pair = [_stored(index, id_) for index in (one, other)]
            most = max(most, float(np.abs(pair[0] - pair[1]).max(initial=0)))
        return most


def _stored(index: Index, id_: str) -> Any:
    document = index.engine.find([id_])
    snapshot = index.engine.snapshot
    part = int(np.searchsorted(snapshot.first, document[0], side="right")) - 1
    return read(snapshot.parts[part].segment, document - snapshot.first[part]).units.vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--documents", type=int, default=120)
    parser.add_argument("--most", type=float, default=7.0, help="Seconds of work before a kill.")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    source = options.folder / "source.jsonl"
    with gzip.open(options.data / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        source.write_text("".join(islice(file, options.documents)), "utf-8")
    reference = options.folder / "reference"
    Command(source, reference).run(float("inf"))
    expected = texts(reference)
    draw = random.Random(13)
    lost: list[float] = []
    ends, most = 0, 0.0
    while len(lost) < options.kills:
        folder = options.folder / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        before: dict[str, str] = {}
        while True:
            command = Command(source, folder)
            enough = len(lost) >= options.kills
            if command.run(float("inf") if enough else draw.uniform(0.2, options.most)):
                break
            lost.append(command.work - command.confirmed)
            found = texts(folder)
            if not (before.items() <= found.items() <= expected.items()):
                raise SystemExit("a confirmed document is gone, or another one is there")
            before = found
            if len(lost) % 10 == 0:
                print(len(lost), "kills, lost at most", round(max(lost), 2), "s", flush=True)
        ends += 1
        if texts(folder) != expected:
            raise SystemExit("the index is not the one that was made in one go")
        most = max(most, difference(folder, reference))
    line = {
        "kills": len(lost),
        "documents": len(expected),
        "indexes_completed": ends,
        "median_lost_s": round(float(np.median(lost)), 2),
        "most_lost_s": round(max(lost), 2),
        "largest_difference": round(most, 4),
    }
    shutil.rmtree(options.folder)
    print(json.dumps(line))
    options.out.write_text(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
