"""Encodings made elsewhere: refused with the document and the place, or stored soundly.

The oracle is the index itself: whatever `add_encoded` takes must open again, verify clean and be
found by every view; whatever it refuses must leave no trace.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute_force import QuickDisk
from builders import arrays_of, assert_same, random_encoded, text_of_words
from hplus.errors import InputError
from hplus.index import Index
from hplus.storage.check import checked
from hplus.storage.segment import FORMATS, Format, read
from hplus.types import Encoded, View

WIDTH = 6
IDS = ["a", "b", "c"]
TEXTS = [text_of_words(30)] * 3
OPTIONS: dict[str, Any] = {"width": WIDTH, "global_width": WIDTH, "fingerprint": "x"}


def sound() -> Encoded:
    return random_encoded(np.random.default_rng(3), [3, 0, 4], WIDTH, dropped=[1, 0, 2])


NAMES = [name[1:] for name in arrays_of(sound())]


def changed(encoded: Encoded, name: str, array: Any) -> Encoded:
    """The encoding with another array at a dotted name."""
    first, _, rest = name.partition(".")
    inside = getattr(encoded, first)
    return replace(encoded, **{first: replace(inside, **{rest: array}) if rest else array})


def array_at(encoded: Encoded, name: str) -> Any:
    return reduce(getattr, name.split("."), encoded)


@pytest.fixture(scope="module", params=FORMATS)
def empty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index without documents, to be copied."""
    format: Format = request.param
    path = tmp_path_factory.mktemp(format) / "index"
    Index.create(path, format=format, disk=QuickDisk(), **OPTIONS).close()
    return path


def assert_refused_or_sound(
    empty: Path, encoded: Encoded, texts: list[str] | None = TEXTS
) -> str | None:
    """What it was refused with, if it was."""
    here = empty.with_name("here")
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(empty, here)
    said = None
    with Index.open(here, disk=QuickDisk()) as index:
        try:
            index.add_encoded(IDS, encoded, texts=texts)
        except InputError as error:
            said = str(error)
    with Index.open(here, disk=QuickDisk()) as index:
        assert index.verify().problems == []
        assert len(index) == (0 if said else 3)
        for view in get_args(View):
            scores = [hit.score for hit in index.search(sound()[0], view=view, explain=True)]
            assert np.isfinite(scores).all()
            assert scores == sorted(scores, reverse=True)
        assert said is None or list((here / "segments").iterdir()) == []
    return said


@st.composite
def malformed(draw: st.DrawFn) -> tuple[str, Any]:
    """An array of a sound encoding with another type, shape or number."""
    name = draw(st.sampled_from(NAMES))
    array = array_at(sound(), name)
    kind = draw(st.sampled_from(["type", "shape", "number", "number"]))
    if kind == "type":
        types = ["f2", "f4", "f8", ">f4", "i1", "i4", "i8", ">i8", "u1", "u8", "c8", "O", "U4", "?"]
        with np.errstate(all="ignore"):
            return name, array.astype(draw(st.sampled_from(types)))
    if kind == "shape":
        shapes = [array[1:], array[..., None], array.T, np.concatenate([array, array[:1]])]
        shapes += [array.reshape(-1), array[:0], array.tolist(), None]
        return name, shapes[draw(st.integers(0, len(shapes) - 1))]
    array = array.astype("f8" if array.dtype.kind == "f" else "i8")
    numbers: list[Any] = [0, -1, 1, 2, 5, 2**31 - 1, 2**31, 2**62, -(2**63)]
    if array.dtype.kind == "f":
        numbers += [np.nan, np.inf, -np.inf, 1e-50, 1e-40, 1e39, 0.5, -0.0]
    if array.size:
        array.reshape(-1)[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(numbers))
    return name, array


@settings(deadline=None, max_examples=150)
@given(changes=st.lists(malformed(), min_size=1, max_size=2), with_texts=st.booleans())
def test_a_malformed_encoding_is_refused_or_stored_soundly(
    empty: Path, changes: list[tuple[str, Any]], with_texts: bool
) -> None:
    encoded = sound()
    for name, array in changes:
        if name == "global_" and (array is None or np.ndim(array) == 0):
            continue
        encoded = changed(encoded, name, array)
    assert_refused_or_sound(empty, encoded, TEXTS if with_texts else None)


def at(name: str, place: Any, value: Any) -> Encoded:
    array = array_at(sound(), name).copy()
    array[place] = value
    return changed(sound(), name, array)


LONG = len(TEXTS[0])
REFUSED = {
    "global_ of document 'c', row 0: expected a vector of unit length, got nan": at(
        "global_", (2, 1), np.nan
    ),
    "units of document 'c', unit 1: expected a vector of unit length, got inf": at(
        "units.vectors", (4, 0), np.inf
    ),
    "units of document 'a', unit 2: expected a vector of unit length, got 2.0": at(
        "units.vectors", 2, np.eye(WIDTH)[0] * 2
    ),
    "units of document 'c', unit 3: expected a positive, finite weight, got 0.0": at(
        "units.weights", -1, 0
    ),
    "units of document 'a', unit 1: expected a positive, finite weight, got nan": at(
        "units.weights", 1, np.nan
    ),
    "units of document 'c', unit 1: expected no more weight than the unit before it": at(
        "units.weights", 4, 1e6
    ),
    "dropped of document 'c', unit 0: expected a positive, finite weight, got -1.0": at(
        "dropped.weights", 1, -1
    ),
    "units of document 'c', unit 0: expected a span within the text, got [5 4]": at(
        "units.spans", 3, (5, 4)
    ),
    "units of document 'a', unit 0: expected a span within the text, got [-1  4]": at(
        "units.spans", 0, (-1, 4)
    ),
    f"dropped of document 'a', unit 0: expected a span within the text, got [  0 {LONG + 1}]": at(
        "dropped.spans", 0, (0, LONG + 1)
    ),
    "units.offsets[2]: expected offsets that rise from 0 to 7, got 2": at("units.offsets", 2, 2),
    "units.offsets[3]: expected offsets that rise from 0 to 7, got 6": at("units.offsets", 3, 6),
    "units.span_offsets[0]: expected offsets that rise from 0 to 7, got 1": at(
        "units.span_offsets", 0, 1
    ),
    "units of document 'a', unit 1: expected a span or more, got 0": at("units.span_offsets", 2, 1),
    "lexical of document 'a', token 0: expected a token id of 0 or more, got -4": at(
        "lexical.ids", 0, -4
    ),
    "lexical of document 'a', token 1: expected a larger token id than the one before it": at(
        "lexical.ids", 1, 0
    ),
    "lexical of document 'a', token 0: expected a positive, finite weight, got inf": at(
        "lexical.weights", 0, np.inf
    ),
    "coverage.cut of document 'b', row 0: expected a number of 0 or more, got -3": at(
        "coverage.cut", 1, -3
    ),
    "coverage.kept of document 'c', row 0: expected a number of 0 or more, got nan": at(
        "coverage.kept", 2, np.nan
    ),
    "coverage.tokens: expected int32, got float64": changed(sound(), "coverage.tokens", np.ones(3)),
    "coverage.tokens: expected int32, got 0 to 4294967296": changed(
        sound(), "coverage.tokens", np.array([0, 1, 2**32])
    ),
    "units.weights: expected float32, got complex64": changed(
        sound(), "units.weights", np.ones(7, np.complex64)
    ),
    "units.vectors: expected shape [7, any], got [6, 6]": changed(
        sound(), "units.vectors", sound().units.vectors[1:]
    ),
    "dropped.vectors: expected shape [3, 0], got [3, 2]": changed(
        sound(), "dropped.vectors", np.zeros((3, 2), np.float32)
    ),
    "expected an Encoded, got list": [1, 2, 3],
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_refused_and_with_which_words(says: str, empty: Path) -> None:
    said = assert_refused_or_sound(empty, REFUSED[says])
    assert said is not None
    assert said.startswith(says)


def casts() -> Iterator[Encoded]:
    encoded = sound()
    yield changed(encoded, "coverage.tokens", encoded.coverage.tokens.astype(np.int64))
    yield changed(encoded, "units.offsets", encoded.units.offsets.astype(np.uint8))
    yield changed(encoded, "units.spans", encoded.units.spans.tolist())
    yield changed(encoded, "global_", encoded.global_.astype(">f8"))
    yield changed(encoded, "units.vectors", np.asfortranarray(encoded.units.vectors))


def test_other_types_are_cast(empty: Path) -> None:
    for encoded in casts():
        assert_same(checked(encoded, IDS, TEXTS), sound())
        assert assert_refused_or_sound(empty, encoded) is None
    half = changed(sound(), "units.weights", sound().units.weights.astype(np.float16))
    assert checked(half, IDS).units.weights.dtype == np.float32
    assert assert_refused_or_sound(empty, half) is None


def test_what_an_index_gives_it_takes_again(empty: Path) -> None:
    """Rounded vectors are a little longer or shorter than one."""
    here = empty.with_name("again")
    shutil.copytree(empty, here)
    with Index.open(here, disk=QuickDisk()) as index:
        index.add_encoded(IDS, sound())
        (part,) = index.engine.snapshot.parts
        index.add_encoded([f"{id_} again" for id_ in IDS], read(part.segment, np.arange(3)))
        assert index.verify().problems == []


def test_zeros_are_a_vector_of_nothing() -> None:
    """Texts without tokens have one, and so may any vector whose first columns are all zero."""
    encoded = changed(sound(), "global_", np.zeros((3, WIDTH), np.float32))
    checked(encoded, IDS)
    encoded = changed(sound(), "units.vectors", np.zeros((7, WIDTH), np.float32))
    checked(encoded, IDS)
