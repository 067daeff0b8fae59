"""The prompt of `hplus search`: one query per line, and commands that change how it searches."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hplus.errors import HPlusError, InputError

if TYPE_CHECKING:
    from hplus.index import Index
    from hplus.search.results import Results
    from hplus.types import Search

HELP = """\
:k 20            hits, at most
:view phrase     what ranks: hybrid, global, phrase or lexical
:where FILTER    only documents that pass the filter; without one, all
:explain         show which phrases matched, or no longer
:help            this list
:quit            the end, as is Ctrl-D
Every other line is a query; the arrow keys bring back earlier ones."""
# Lines that the next session remembers.
REMEMBERED = 1_000


@dataclass(frozen=True)
class Asked:
    """How the next query is searched, and whether its hits are explained."""

    request: Search
    explain: bool

    def __str__(self) -> str:
        where = "" if self.request.where is None else f", where {self.request.where}"
        explained = ", explained" if self.explain else ""
        return f"k {self.request.k}, view {self.request.view}{where}{explained}"


def prompt(opened: Index, asked: Asked, show: Callable[[Results, bool], None]) -> None:
    """One query per line until the input ends; the model stays loaded, a mistake ends nothing.

    Commands are for people: in a pipe every line is a query.
    """
    person = sys.stdin.isatty()
    if person:
        print(
            f"{len(opened):,} documents; one query per line, :help for commands, Ctrl-D ends",
            file=sys.stderr,
        )
    with history() if person else nullcontext():
        for line in _lines(person=person):
            try:
                if not (person and line.startswith(":")):
                    explain = asked.explain or asked.request.explain
                    request = replace(asked.request, query=line, explain=explain)
                    show(opened.search(request), asked.explain)
                elif line.split()[0] == ":quit":
                    return
                elif line.split()[0] == ":help":
                    print(HELP, file=sys.stderr)
                else:
                    asked = changed(asked, line)
                    print(asked, file=sys.stderr)
            except HPlusError as error:
                print(f"error: {error}", file=sys.stderr)


def changed(asked: Asked, line: str) -> Asked:
    """What a command makes of it."""
    from hplus.filters import syntax

    command, _, value = line.partition(" ")
    value = value.strip()
    request = asked.request
    if command == ":k":
        if not value.isdecimal():
            raise InputError(f"expected a number of hits, such as :k 20, got {value!r}")
        return replace(asked, request=replace(request, k=int(value)))
    if command == ":view":
        return replace(asked, request=replace(request, view=value))  # type: ignore[arg-type]
    if command == ":where":
        if value:
            syntax.parse(value)  # a mistake is shown now
        return replace(asked, request=replace(request, where=value or None))
    if command == ":explain":
        return replace(asked, explain=not asked.explain)
    raise InputError(f"unknown command {command}; :help lists all of them")


def _lines(*, person: bool) -> Iterator[str]:
    while True:
        try:
            line = input("query> " if person else "")
        except (EOFError, KeyboardInterrupt):
            if person:
                print(file=sys.stderr)
            return
        if line.strip():
            yield line.strip() if person else line


@contextmanager
def history() -> Iterator[None]:
    """Earlier lines at the arrow keys, also those of earlier sessions, where Python has readline
    and the file can be read and written; without either, the prompt works all the same."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "hplus" / "history"
    with suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(REMEMBERED)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)  # what somebody looked for is nobody else's business
            readline.write_history_file(path)
