"""A document on its way into an index, and the checks it has to pass."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from hplus.errors import InputError
from hplus.sources.columns import DEFAULT, Columns, of_row

ID_BYTES = 512
"""The longest id, in UTF-8."""
VECTORS = "hplus_vectors"
"""The field of an exported document that is computed again when it is indexed again."""
METADATA_DEPTH = 32
"""Levels of lists and objects in metadata, at most."""

_INTEGER_BITS = 1024  # the range of floats; filters compare the two
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Complain: TypeAlias = Callable[[str], None]
"""What to do about a bad row: report it, or raise."""
Place: TypeAlias = Callable[[], str]
"""Where the row read last is: a file and its line, or a position."""
Row = TypeVar("Row")


@dataclass(frozen=True)
class Document:
    """A document on its way into an index; its fields are checked when it is made.

    >>> Document("d1", "type 2 diabetes", {"year": 2021})
    Document(id='d1', text='type 2 diabetes', metadata={'year': 2021})
    """

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_id(self.id)
        if not isinstance(self.text, str):
            raise InputError(f"the text is {type(self.text).__name__}, expected str")
        _check_characters("the text", self.text)
        if not isinstance(self.metadata, dict):
            raise InputError(f"the metadata is {type(self.metadata).__name__}, expected dict")
        _check_value("", self.metadata, METADATA_DEPTH)


def documents_of(
    rows: Iterator[Row], make: Callable[[Row], Document | None], where: Place, bad: Complain
) -> Iterator[tuple[Document, Place]]:
    """What `make` makes of each row; bad rows go to `bad` with their place, None is skipped."""
    while True:
        try:
            document = make(next(rows))
        except StopIteration:
            return
        except InputError as error:
            bad(f"{where()}: {error}")
            continue
        if document is not None:
            yield document, where


def distinct(
    found: Iterator[tuple[Document, Place]], is_new: Callable[[str], bool], bad: Complain
) -> Iterator[Document]:
    """Each id once: `is_new` notes an id and says whether it is the first; others go to `bad`.

    Rows without ids may repeat a text: the second of them has "-2" after the hash, and so on.
    """
    times: dict[str, int] = {}
    for document, where in found:
        id = document.id
        new = is_new(id)
        if not new and id == id_of_text(document.text):
            times[id] = times.get(id, 1) + 1
            document = replace(document, id=f"{id}-{times[id]}")
            new = is_new(document.id)
        if new:
            yield document
        else:
            bad(f"{where()}: the id {document.id!r} repeats; ids must differ")


def id_of_text(text: str) -> str:
    """The id of a row that has none: where it is in its source may change, its text does not.

    >>> id_of_text("type 2 diabetes")
    '2ae3516c38a3e6b3'
    """
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def document_of(fields: Mapping[Any, Any], columns: Columns = DEFAULT) -> Document:
    """A document from an object, a dict or a row; without an id, the hash of its text is one."""
    rest = dict(fields)
    rest.pop(VECTORS, None)
    chosen = of_row(rest, columns)
    id: Any = None if chosen.id is None else rest.pop(chosen.id)
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    title = "" if chosen.title is None else rest.pop(chosen.title) or ""
    if not isinstance(title, str):
        raise InputError(f"the title is {type(title).__name__}, expected str")
    text = _joined([rest.pop(name) for name in chosen.texts])
    nested = rest.get("metadata", {})
    if nested is None or isinstance(nested, dict):
        rest.pop("metadata", None)
        rest = {**(nested or {}), **rest}
    if title and chosen.title is not None:
        rest[chosen.title] = title
    text = f"{title} {text}".strip()
    return Document(id_of_text(text) if chosen.id is None else id, text, rest)


def _joined(texts: list[Any]) -> str:
    """Several texts as one; a null among others counts as empty."""
    present = [text for text in texts if text is not None] or texts
    for text in present:
        if not isinstance(text, str):
            found = "null" if text is None else type(text).__name__
            raise InputError(
                f"the text is {found}, expected a string; give the row a text, or leave such rows "
                'out with --on-error skip (on_error="skip")'
            )
    if len(present) == 1:
        return str(present[0])
    return "\n\n".join(filter(None, map(str.strip, present)))


def parse_json(text: str) -> Any:
    """A value of JSON, without NaN and Infinity."""
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise InputError("the JSON is nested too deeply") from None
    except InputError:
        raise
    except ValueError:
        raise InputError("the JSON has a number with too many digits") from None


def _refuse_constant(name: str) -> None:
    raise InputError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def document_of_text(text: str) -> Document:
    """A document that is a text and nothing else."""
    return Document(id_of_text(text.strip()), text.strip())


def _check_id(id: object) -> None:
    if not isinstance(id, str):
        raise InputError(f"the id is {type(id).__name__}, expected str")
    if not id:
        raise InputError("the id is empty")
    if _CONTROL.search(id):
        raise InputError(f"the id {id!r} contains a control character")
    _check_characters("the id", id)
    if len(id.encode()) > ID_BYTES:
        raise InputError(f"the id has {len(id.encode())} bytes, at most {ID_BYTES} are allowed")


def _check_characters(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} contains half a surrogate pair at character {error.start}"
        ) from None


def _check_value(path: str, value: object, depth: int) -> None:
    """Metadata holds JSON values only."""
    name = f"metadata{path}"
    if isinstance(value, str):
        _check_characters(name, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{name} is {value}, which is not a JSON number")
    elif isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS:
            raise InputError(f"{name} is an integer of more than {_INTEGER_BITS} bits")
    elif isinstance(value, (dict, list)):
        if depth == 0:
            raise InputError(f"the metadata is nested more than {METADATA_DEPTH} levels deep")
        _check_elements(path, value, depth - 1)
    elif value is not None:
        raise InputError(f"{name} is {type(value).__name__}, expected a JSON value")


def _check_elements(path: str, value: dict[Any, Any] | list[Any], depth: int) -> None:
    if isinstance(value, list):
        for i, element in enumerate(value):
            _check_value(f"{path}[{i}]", element, depth)
        return
    for key, element in value.items():
        if not isinstance(key, str):
            raise InputError(f"metadata{path} has the key {key!r}, expected str")
        _check_characters(f"a key of metadata{path}", key)
        _check_value(f"{path}.{key}", element, depth)
