"""Errors as clients see them: one shape, one sentence, a code that programs can compare.

    {"error": {"code": "filter", "message": "expected …", "field": "where", "caret": 5}}

`field` and `caret` (a character of the filter) are there when they are known. OpenAI's clients read
`error.message`, Cohere's the status, so the shape serves the drop-in endpoints too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.exceptions import RequestValidationError

from hplus.errors import (
    BudgetError,
    FilterError,
    HPlusError,
    IndexBusyError,
    IndexDamagedError,
    InputError,
    MissingDocumentError,
    MissingExtraError,
    ServiceError,
    StorageError,
    TermsError,
)

RETRY_AFTER = {"retry-after": "1"}
# What pydantic puts into the place of a mistake where a field may have one of several types.
ALTERNATIVES = {"constrained-str", "list[constrained-str]", "TextDocument"}


@dataclass
class RefusedError(Exception):
    """An answer that is an error."""

    status: int
    code: str
    message: str
    field: str | None = None
    caret: int | None = None
    details: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None

    def body(self) -> bytes:
        """The error as JSON."""
        parts = {
            "code": self.code,
            "message": self.message,
            "field": self.field,
            "caret": self.caret,
            "details": self.details,
        }
        shown = {name: value for name, value in parts.items() if value is not None}
        return json.dumps({"error": shown}).encode()


# The first type that fits: (type, status, code, field).
KINDS: Sequence[tuple[type[HPlusError], int, str, str | None]] = (
    (MissingDocumentError, 404, "missing_document", None),
    (FilterError, 422, "filter", "where"),
    (BudgetError, 422, "budget", None),
    (TermsError, 422, "terms", "terms"),
    (MissingExtraError, 501, "missing_extra", None),
    (InputError, 422, "input", None),
    (IndexBusyError, 503, "busy", None),
    (StorageError, 507, "storage", None),
    (ServiceError, 503, "engine", None),
    (IndexDamagedError, 500, "damaged", None),
    (HPlusError, 500, "model", None),
)


def problem_of(error: HPlusError) -> RefusedError:
    """An error of the library as an answer."""
    _, status, code, about = next(kind for kind in KINDS if isinstance(error, kind[0]))
    return RefusedError(
        status,
        code,
        str(error),
        field=about,
        caret=error.at if isinstance(error, FilterError) else None,
        headers=RETRY_AFTER if status == 503 else None,
    )


def problem_of_request(error: RequestValidationError) -> RefusedError:
    """A body or parameter that is not as the schema says: the first mistake, with its place."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return RefusedError(400, "json", f"the body is not JSON: {first['ctx']['error']}")
    if tuple(first["loc"]) == ("body",) and first["type"] != "value_error":
        return RefusedError(
            422, "input", "expected a JSON object, with Content-Type: application/json"
        )
    place = [str(part) for part in first["loc"][1:] if part not in ALTERNATIVES]
    name = ".".join(place) or "the body"
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return RefusedError(422, "input", f"{name}: {message}", field=".".join(place) or None)


def internal(request_id: str) -> RefusedError:
    """500: what happened is in the log alone."""
    return RefusedError(500, "internal", f"an internal error; the log has request {request_id}")


def full(what: str) -> RefusedError:
    """503: come back in a second."""
    return RefusedError(503, "busy", f"{what}; try again in a second", headers=RETRY_AFTER)
