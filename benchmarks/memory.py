"""Peak memory while streaming documents through a tiny backbone: it must not grow with them.

python benchmarks/memory.py
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

COUNTS = (2_000, 5_000, 20_000)


def stream(count: int, folder: Path) -> None:
    """Encode `count` made-up documents one step at a time and print the peak."""
    from hplus import Budget, HPlus

    model = HPlus(folder, window=64)
    texts = (
        f"chronic kidney disease {i} and heart failure of the patient. " * 4 for i in range(count)
    )
    done = sum(len(part) for part in model.stream_documents(texts, budget=Budget(8)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"documents": done, "peak_mb": round(peak, 1)}))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        stream(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
        from tiny import write_tiny

        with tempfile.TemporaryDirectory() as folder:
            write_tiny(Path(folder))
            for count in COUNTS:
                subprocess.run([sys.executable, __file__, str(count), folder], check=True)
