"""A job: what all shards of a corpus have in common, and how it is divided into them.

Every shard file carries its job, so a folder of shards needs no other record of what it is, and
machines that share nothing but a disk need no lock.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hplus.arguments import chosen, whole
from hplus.errors import BudgetError, InputError
from hplus.sources import read as sources
from hplus.sources.columns import Columns
from hplus.storage.segment import FORMATS, Format, check_format
from hplus.units.select import Budget, budget_of

if TYPE_CHECKING:
    from hplus.model import HPlus

MOST_SHARDS = 99_999
# What a shard holds unless told otherwise: 125 MB at merge to 32, which a worker has in memory.
USUAL_DOCUMENTS = 10_000


@dataclass(frozen=True)
class Job:
    """One corpus, one model, one way to store its encodings.

    fingerprint identifies the model, which `model` is the name of; source: SHA-256 of the corpus;
    rows: its documents, bad rows included; columns, on_error: how it is read; passages: the most
    tokens of a passage, None if documents are not divided.
    """

    fingerprint: str
    model: str = field(compare=False)
    source: str
    rows: int
    shards: int
    budget: Budget
    width: int
    format: Format
    passages: int | None = None
    columns: Columns | None = None
    on_error: str = "stop"

    def bounds(self, shard: int) -> tuple[int, int | None]:
        """Shard 1 to `shards` holds the documents from the first to before the second number; the
        last one holds all that remain.

        >>> job = Job("f", "small", "s", 10, 3, Budget(), 8, "int8")
        >>> [job.bounds(shard) for shard in (1, 2, 3)]
        [(0, 3), (3, 6), (6, None)]
        """
        first, last = ((number * self.rows) // self.shards for number in (shard - 1, shard))
        return first, None if shard == self.shards else last

    def file(self, shard: int) -> str:
        """The name of a shard's file.

        >>> Job("f", "small", "s", 10, 64, Budget(), 8, "int8").file(3)
        '00003-of-00064.safetensors'
        """
        return f"{shard:05d}-of-{self.shards:05d}.safetensors"

    def as_json(self) -> dict[str, Any]:
        """Everything, in values of JSON."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Job:
        """The job that `as_json` wrote."""
        columns = values["columns"]
        if columns is not None:
            columns = Columns(**{**columns, "text": tuple(columns["text"])})
        return cls(**{**values, "budget": Budget(**values["budget"]), "columns": columns})

    def difference(self, other: Job) -> str:
        """The first thing in which another job differs from this one, in words; "" if none."""
        for name, words in _WORDS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{words} {_shown(theirs)}, not {_shown(mine)}"
        return ""


_WORDS = {
    "fingerprint": "model",
    "rows": "documents:",
    "source": "a source of the SHA-256",
    "shards": "shards:",
    "budget": "budget:",
    "width": "width",
    "format": "format",
    "passages": "passages:",
    "columns": "columns:",
    "on_error": "on error:",
}


def _shown(value: Any) -> str:
    if isinstance(value, str) and len(value) == 64:  # a hash
        return value[:12]
    return f"{value:,}" if isinstance(value, int) else str(value)


def job_of(
    model: HPlus,
    source: str | os.PathLike[str],
    *,
    shards: int | None = None,
    budget: Budget | int | None = None,
    width: int | None = None,
    format: Format = "int8",
    passages: int | None = None,
    columns: Columns | None = None,
    on_error: str = "stop",
) -> Job:
    """The job of encoding a file or folder of documents in `shards` parts of equal size.

    budget, width: the model's unless given. The source is read twice: its bytes are hashed and its
    rows are counted, so that machines can tell whether they have the same one.
    """
    if not isinstance(source, (str, os.PathLike)) or source == "-":
        raise InputError(
            "expected a file or a folder: what is divided into shards is read by every process"
        )
    chosen("format", format, FORMATS)
    chosen("on_error", on_error, ("stop", "skip"))
    width = model.recipe.phrase_width or model.dim if width is None else width
    digest, rows = sources.digest(source), sources.count(source, columns)
    if rows is None:  # what is wrong with it is said by reading it
        next(sources.read(source, columns=columns), None)
        raise InputError(f"{source}: expected a file or a folder, whose documents can be counted")
    if shards is None:
        shards = max(1, -(-rows // USUAL_DOCUMENTS))
    width = whole("width", width, 1, BudgetError, model.dim)
    check_format(format, width)
    return Job(
        fingerprint=model.fingerprint,
        model=model.checkpoint.name,
        source=digest,
        rows=rows,
        shards=whole("shards", shards, most=MOST_SHARDS),
        budget=budget_of(budget, model.recipe.document_budget),
        width=width,
        format=format,
        passages=None if passages is None else whole("passages", passages),
        columns=columns,
        on_error=on_error,
    )
