"""Fields that a filter names and no document has: said, with the near ones.

A missing field matches nothing, so that a misspelt one finds nothing, or with `not` everything,
without a word. One look at the catalogue for each field of a filter tells, and is remembered as
long as the snapshot lives.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from hplus.filters import sql
from hplus.filters.ast import Exists, Field, Filter, fields_of
from hplus.filters.syntax import spelled
from hplus.storage import catalogue
from hplus.storage.snapshot import Snapshot

# Documents whose fields are candidates for what was meant, and fields that are named.
LOOKED_AT = 10_000
NAMED = 3


def hint(snapshot: Snapshot, where: Filter) -> str:
    """A sentence about the fields that no document has; empty if there is none."""
    lacking = [field for field in fields_of(where) if not _known(snapshot, field)]
    return said(lacking, _names(snapshot)) if lacking and len(snapshot) else ""


def said(lacking: Sequence[Field], names: Sequence[str]) -> str:
    """That no document has these fields; names: of the fields that there are."""
    return "; ".join(f"no document has a field {spelled(f)}{_near(names, f)}" for f in lacking)


def _known(snapshot: Snapshot, field: Field) -> bool:
    known = snapshot.known_fields.get(field)
    if known is None:
        condition, values = sql.compile(Exists(field))
        found = catalogue.select(
            snapshot.connection,
            f"SELECT 1 FROM documents WHERE deleted = 0 AND ({condition}) LIMIT 1",
            values,
        )
        known = snapshot.known_fields[field] = bool(found)
    return known


def _names(snapshot: Snapshot) -> list[str]:
    return [
        str(name)
        for (name,) in catalogue.select(
            snapshot.connection,
            "SELECT DISTINCT key FROM (SELECT metadata FROM documents WHERE deleted = 0 LIMIT ?), "
            "json_each(metadata) ORDER BY key LIMIT 1000",
            [LOOKED_AT],
        )
    ]


def _near(names: Sequence[str], field: Field) -> str:
    """The fields that may have been meant: spelled alike, else some of those that there are."""
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(field.path[0].casefold(), list(folded), NAMED, 0.6)
    shown = [spelled(Field((folded[name],))) for name in close]
    if shown:
        return f"; did you mean {' or '.join(shown)}?"
    if not names:
        return "; the documents have no metadata"
    others = [spelled(Field((name,))) for name in names[: 2 * NAMED] if name]
    return f"; known fields: {', '.join(others)}{' …' if len(names) > len(others) else ''}"
