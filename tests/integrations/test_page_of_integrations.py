"""The Python of docs/integrations.md runs, as far as its packages are installed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()
NEEDED = {"langchain": "langchain_core", "llama_index": "llama_index", "mteb": "mteb"}


@pytest.mark.parametrize("name", NEEDED)
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    if find_spec(NEEDED[name]) is None:
        pytest.skip(f"no {NEEDED[name]} here")
    blocks = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    (block,) = [one for one in blocks if f"integrations.{name} " in one]
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
