"""Results of several machines in one file, each row with its processor's instruction set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def instruction_set() -> str:
    """What decides the speed of products in int8: AVX512-VNNI, AVX2, or other."""
    flags = Path("/proc/cpuinfo").read_text().split()
    return "AVX512-VNNI" if "avx512_vnni" in flags else "AVX2" if "avx2" in flags else "other"


def record(file: Path, rows: list[dict[str, Any]]) -> None:
    """Print this machine's rows, and write them in place of its former ones; others stay."""
    isa = instruction_set()
    lines = [json.dumps({"isa": isa} | row) for row in rows]
    print("\n".join(lines))
    kept = file.read_text().splitlines() if file.exists() else []
    others = [line for line in kept if json.loads(line)["isa"] != isa]
    file.write_text("\n".join([*others, *lines]) + "\n")
