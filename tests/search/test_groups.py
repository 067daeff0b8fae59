"""Groups against the plain definition: the ranking, and of each group its first document."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import QuickDisk
from builders import random_encoded
from hplus import Hit, Index
from hplus.search import groups
from hplus.types import Encoded, concatenate

# Metadata, and the group they belong to; None is a group of its own.
KINDS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"f": None}, None),
    ({"f": []}, None),
    ({"f": 1}, "number"),
    ({"f": 1.0}, "number"),
    ({"f": True}, "truth"),
    ({"f": "1"}, "digit"),
    ({"f": "a"}, "a"),
    ({"f": ["a"]}, "a"),
    ({"f": ["a", "b"]}, "a and b"),
    ({"f": {"x": 1, "y": [2]}}, "object"),
    ({"f": {"y": [2], "x": 1}}, "object"),
]
GROUP = dict(enumerate(label for _, label in KINDS))


def made(kinds: list[int], folder: Any, encoded: Encoded | None = None) -> Index:
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    index = Index.create(folder, disk=QuickDisk(), **options)
    if kinds:
        index.add_encoded(
            [f"d{i:03d}" for i in range(len(kinds))],
            encoded or random_encoded(np.random.default_rng(3), [2] * len(kinds)),
            metadata=[{**KINDS[kind][0], "kind": kind} for kind in kinds],
        )
    return index


def leaders(ranked: list[Hit]) -> list[Hit]:
    """The first hit of every group."""
    seen: set[str] = set()
    found = []
    for hit in ranked:
        group = GROUP[hit.metadata["kind"]]
        if group is None or group not in seen:
            found.append(hit)
            seen |= {group} - {None}  # type: ignore[operator]
    return found


@settings(deadline=None, max_examples=40)
@given(
    st.data(),
    st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=40),
    st.sampled_from(["hybrid", "global", "phrase", "lexical"]),
)
def test_the_best_of_each_group_are_found_whatever_the_pool(
    data: st.DataObject, kinds: list[int], view: Any
) -> None:
    """k groups are found if there are k, although the best documents may be of one group."""
    k, from_ = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 4))
    where = data.draw(st.sampled_from([None, "kind >= 3", "kind = 99"]))
    query = random_encoded(np.random.default_rng(5), [3])
    with (
        tempfile.TemporaryDirectory() as folder,
        made(kinds, f"{folder}/index") as index,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(groups, "BLOCK", data.draw(st.sampled_from([1, 3, 256])))
        options: dict[str, Any] = {"view": view, "where": where}
        ranked = leaders(list(index.search(query, k=99, **options)))
        options |= {"k": k, "from_": from_, "group_by": "f"}
        assert list(index.search(query, **options)) == ranked[from_ : from_ + k]
        lowest = data.draw(st.sampled_from([-9.0, *(hit.score for hit in ranked)]))
        high = [hit for hit in ranked if hit.score >= lowest]
        found = index.search(query, min_score=lowest, **options)
        assert list(found) == high[from_ : from_ + k]
        if view != "hybrid":  # whose ranking depends on the pool
            assert list(index.search(query, pool=1, **options)) == ranked[from_ : from_ + k]
        assert list(index.rerank(query, index.engine.ids(np.arange(len(kinds))), group_by="f")) == (
            leaders(list(index.rerank(query, [f"d{i:03d}" for i in range(len(kinds))])))
        )


def test_the_pool_grows_until_it_holds_k_groups(tmp_path: Any) -> None:
    """Thirty documents of one group before the first of another."""
    near = random_encoded(np.random.default_rng(1), [1])
    far = random_encoded(np.random.default_rng(2), [1])
    kinds = [*[7] * 30, 5, 6]
    with made(kinds, tmp_path / "index", concatenate([*[near] * 30, far, far])) as index:
        for explain in (False, True):
            found = index.search(near, k=3, pool=2, group_by="f", explain=explain)
            assert [hit.metadata.get("f") for hit in found] == ["a", True, "1"]
            assert found.candidates == 32
        few = index.search(near, k=3, pool=2, group_by="f", min_score=found[0].score - 1e-3)
        assert [hit.id for hit in few] == ["d000"]


@pytest.mark.parametrize(
    ("field", "first"),
    [
        ("journal.name", ["a", "c"]),
        ("`journal`.`name`", ["a", "c"]),
        ("`Publication Year`", ["a", "b"]),
        ("journal", ["a", "b", "c"]),
        ("id", ["a", "b", "c"]),
        ("nothing", ["a", "b", "c"]),
    ],
)
def test_fields_are_written_as_in_filters(tmp_path: Any, field: str, first: list[str]) -> None:
    one = random_encoded(np.random.default_rng(1), [1])
    options: dict[str, Any] = {"width": 8, "global_width": 8, "fingerprint": "x"}
    with Index.create(tmp_path / "index", disk=QuickDisk(), **options) as index:
        metadata: list[dict[str, Any]] = [
            {"journal": {"name": "J", "no": 1}, "Publication Year": 1},
            {"journal": {"name": "J", "no": 2}, "Publication Year": 2},
            {"journal": {"name": "K", "no": 3}, "Publication Year": 1},
        ]
        index.add_encoded(["a", "b", "c"], concatenate([one] * 3), metadata=metadata)
        assert [hit.id for hit in index.search(one, group_by=field)] == first


def test_a_document_itself_does_not_lead_its_group(tmp_path: Any) -> None:
    encoded = random_encoded(np.random.default_rng(1), [3, 3, 3])
    with made([7, 7, 5], tmp_path / "index", encoded) as index:
        found = index.more_like("d000", group_by="f")
        assert sorted(hit.id for hit in found) == ["d001", "d002"]
