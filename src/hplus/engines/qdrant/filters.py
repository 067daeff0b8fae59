"""Filters as Qdrant's conditions.

On what a point carries for them (`fields.py`), every comparison of `filters.ast` is one condition,
except three: the order of texts (ISO dates, too), the order and parts of ids, and integers that no
float equals. `compile` says which documents may pass and whether that is exact; where it is not,
and for documents with numbers that Qdrant rounds, the collection asks `ast.matches`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qdrant_client import grpc

from hplus.engines.qdrant.fields import as_float, key
from hplus.engines.qdrant.points import point_id
from hplus.filters.ast import (
    ID,
    And,
    Compare,
    Contains,
    Exists,
    Filter,
    In,
    Leaf,
    Not,
    Or,
    Value,
)

NOTHING = grpc.Filter(must=[grpc.Condition(has_id=grpc.HasIdCondition(has_id=[]))])


@dataclass(frozen=True)
class Passing:
    """Conditions that every passing document meets; exact: and no other does."""

    conditions: Any
    exact: bool


def compile(filter: Filter) -> Passing:
    """A filter as conditions."""
    match filter:
        case Not(part):
            inside = compile(part)
            if inside.exact:
                return Passing(grpc.Filter(must_not=[_nested(inside.conditions)]), True)
            return Passing(grpc.Filter(), False)
        case And(parts):
            every = [compile(part) for part in parts]
            conditions = grpc.Filter(must=[_nested(one.conditions) for one in every])
            return Passing(conditions, all(one.exact for one in every))
        case Or(parts):
            any_ = [compile(part) for part in parts]
            conditions = grpc.Filter(should=[_nested(one.conditions) for one in any_])
            return Passing(conditions if any_ else NOTHING, all(one.exact for one in any_))
        case leaf:
            found = _of_id(leaf) if leaf.field == ID else _of_field(leaf)
            return Passing(grpc.Filter(), False) if found is None else Passing(found, True)


def with_ids(points: Iterable[str]) -> Any:
    """The points of these ids."""
    ids = [grpc.PointId(uuid=point) for point in points]
    return grpc.Filter(must=[grpc.Condition(has_id=grpc.HasIdCondition(has_id=ids))])


def either(*filters: Any) -> Any:
    """What passes one of several."""
    return grpc.Filter(should=[_nested(one) for one in filters])


def without(filter: Any, other: Any) -> Any:
    """What passes the first and not the second."""
    return grpc.Filter(must=[_nested(filter)], must_not=[_nested(other)])


def rough() -> Any:
    """Documents with a number that Qdrant would round."""
    return _field(key="rough", match=grpc.Match(boolean=True))


def _of_id(leaf: Leaf) -> Any | None:
    match leaf:
        case Exists():
            return grpc.Filter()
        case In(values=values):
            return with_ids(point_id(str(value)) for value in values)
        case Compare(operator="=", value=value):
            return with_ids([point_id(str(value))])
        case Compare(operator="!=", value=value):
            return grpc.Filter(must_not=[_nested(with_ids([point_id(str(value))]))])
    return None


def _of_field(leaf: Leaf) -> Any | None:
    name = key(leaf.field.path)
    match leaf:
        case Exists():
            return _field(key="names", match=grpc.Match(keyword=name))
        case Contains(text=text):
            return _field(key=f'folded."{name}"', match=grpc.Match(text=text.casefold()))
        case In(values=values):
            return _equal_to_any(name, values)
        case Compare(operator="=", value=value):
            return _equal_to_any(name, (value,))
        case Compare(operator="!=", value=value):
            same = _equal_to_any(name, (value,))
            exists = grpc.FieldCondition(key="names", match=grpc.Match(keyword=name))
            return same and grpc.Filter(
                must=[grpc.Condition(field=exists)], must_not=[_nested(same)]
            )
        case Compare(operator=sign, value=(int() | float()) as value):
            number = as_float(value)
            if number is None:
                return None
            bound = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}[sign]
            return _field(key=f'fields."{name}"', range=grpc.Range(**{bound: number}))
    return None


def _equal_to_any(name: str, values: tuple[Value, ...]) -> Any | None:
    """A value at a path that equals one of these; None if one of them is no float."""
    where = f'fields."{name}"'
    any_ = []
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        any_.append(
            _field(key=where, match=grpc.Match(keywords=grpc.RepeatedStrings(strings=texts)))
        )
    for value in values:
        if isinstance(value, bool):
            any_.append(_field(key=where, match=grpc.Match(boolean=value)))
        elif isinstance(value, (int, float)):
            number = as_float(value)
            if number is None:
                return None
            any_.append(_field(key=where, range=grpc.Range(gte=number, lte=number)))
    return either(*any_) if any_ else NOTHING


def _field(**condition: Any) -> Any:
    return grpc.Filter(must=[grpc.Condition(field=grpc.FieldCondition(**condition))])


def _nested(filter: Any) -> Any:
    return grpc.Condition(filter=filter)
