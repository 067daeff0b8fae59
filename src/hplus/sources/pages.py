"""Web pages and PDFs as texts, for which `pip install hplus[documents]` brings the readers.

Their formats are large and files come from anywhere, so another process reads each of them
(`page_reader.py`), with bounded time and memory: a file that makes its reader loop, crash or grow
is one bad file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hplus.errors import InputError, MissingExtraError

ENDINGS = (".html", ".htm", ".xhtml", ".pdf")
PAGE_BYTES = 256 * 2**20
"""The largest file."""
SECONDS = 60.0
MEMORY = 2 * 2**30
INSTALL = "to read .html and .pdf files, run: pip install 'hplus[documents]'"


@dataclass(frozen=True)
class Page:
    """The text of a file and its title, which may be empty."""

    text: str
    title: str


def installed() -> bool:
    """Whether both readers are there."""
    return all(find_spec(name) is not None for name in ("selectolax", "pypdf"))


def read_page(content: bytes, ending: str) -> Page:
    """The text of an .html or .pdf file."""
    if not installed():
        raise MissingExtraError(INSTALL)
    kind = "PDF" if ending == ".pdf" else "HTML"
    # -S and the path of this process: it imports what we would, without looking for it again.
    reader = [sys.executable, "-S", "-P", str(Path(__file__).with_name("page_reader.py"))]
    path = os.pathsep.join(one for one in sys.path if one)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            [*reader, kind, str(MEMORY)],
            input=content,
            env=environment,
            timeout=SECONDS,
            capture_output=True,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"reading it as {kind} took longer than {SECONDS:g} seconds") from None
    try:
        found = json.loads(done.stdout)
    except ValueError:
        why = f"its reader ended with code {done.returncode}, perhaps out of memory"
        raise InputError(f"cannot read it as {kind}: {why}") from None
    if "error" in found:
        raise InputError(f"cannot read it as {kind}: {found['error']}")
    return Page(found["text"], found["title"])
