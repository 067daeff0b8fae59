"""docs/engines.md: every command and every program is run against a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine_servers import ROOT, Node
from test_docs import assert_alike, commands, printed

pytest.importorskip("qdrant_client", reason="needs hplus[qdrant]")
BLOCK = re.compile(r"```(shell|py)\n(.*?)```", re.DOTALL)
WRITTEN = "localhost:6334"


def test_the_page_of_engines_shows_what_is_printed(qdrant_node: Node, tmp_path: Path) -> None:
    there = f"127.0.0.1:{qdrant_node.grpc}"
    blocks = BLOCK.findall((ROOT / "docs" / "engines.md").read_text())
    assert [kind for kind, _ in blocks] == ["shell", "shell", "py", "shell"]
    for kind, block in blocks:
        if kind == "py":
            program = block.replace(WRITTEN, there)
            done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
            assert done.returncode == 0
            continue
        for command, shown in commands(block):
            found = printed(command.replace(WRITTEN, there), tmp_path)
            # Rounding of one machine; tests/engines/test_contract.py bounds it.
            rounding = re.compile(r"\d\.\de-\d\d of ours")
            assert_alike(
                rounding.sub("# of ours", shown),
                rounding.sub("# of ours", found.replace(there, WRITTEN)),
            )
