"""Nothing is reported to anybody: onnxruntime would, from the moment it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("first", ["", "import onnxruntime"])
def test_no_trace_of_telemetry(tmp_path: Path, first: str) -> None:
    """A home of its own stays empty; if onnxruntime is there already, it is told to be quiet."""
    code = f"""
{first}
from hplus.backbones.runtime import onnxruntime
import hplus
told = []
module = onnxruntime()
module.disable_telemetry_events = lambda: told.append(True)
hplus.HPlus("small").encode_query(["no report of this"])
assert told
"""
    kept = {k: v for k, v in os.environ.items() if k not in ("ORT_DISABLE_TELEMETRY", "CI")}
    environment = {**kept, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    if not first:
        assert list(tmp_path.iterdir()) == []
