"""Lexical lists added up: compiled and numpy, equal to the last bit, against a plain loop."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hplus.kernels import lexical
from kernels.test_maxsim import some

WAYS = ["numpy"] + ([] if lexical._lexical is None else ["C"])


def lists(seed: int, dtype: str, tokens: int) -> tuple[Any, ...]:
    """Postings of any length, in any order, of up to 200 documents."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(0, 40, tokens))
    starts = np.concatenate([[0], ends[:-1]]) if tokens else ends
    count = int(ends[-1]) if tokens else 0
    documents = rng.integers(0, 200, count).astype(dtype)
    weights = (rng.random(count) * 10.0 ** rng.integers(-5, 3, count)).astype(np.float16)
    order = rng.permutation(tokens)
    factors = rng.standard_normal(tokens).astype(np.float32).astype(np.float64)
    return documents, weights, starts[order].astype(np.int64), ends[order].astype(np.int64), factors


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(lexical, "_lexical", None)
    return str(request.param)


@some
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["u1", "u2", "u4"]),
    tokens=st.integers(0, 9),
)
def test_sums_are_those_of_a_plain_loop(seed: int, dtype: str, tokens: int) -> None:
    documents, weights, starts, ends, factors = lists(seed, dtype, tokens)
    expected = np.zeros(200)
    for start, end, factor in zip(starts, ends, factors, strict=True):
        for i in range(start, end):
            expected[documents[i]] += factor * np.float64(weights[i])
    for extension in (None, lexical._lexical):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lexical, "_lexical", extension)
            sums = lexical.add_lists(200, documents, weights, starts, ends, factors)
        np.testing.assert_array_equal(sums, expected)


@pytest.mark.usefixtures("way")
def test_a_document_that_is_not_there() -> None:
    documents, weights, starts, ends, factors = lists(1, "u2", 6)
    documents[ends.max() - 1] = 200
    with pytest.raises(ValueError, match="document 200 of 200"):
        lexical.add_lists(200, documents, weights, starts, ends, factors)


@pytest.mark.skipif("C" not in WAYS, reason="the extension is not compiled here")
def test_the_compiled_lists_trust_nobody() -> None:
    good = (np.zeros(200), *lists(2, "u4", 6))
    frozen = np.zeros(200)
    frozen.flags.writeable = False
    for i, bad in (
        (0, frozen),
        (0, np.zeros(200, np.float32)),
        (0, np.frombuffer(bytearray(1608), np.float64, 200, offset=4)),
        (1, good[1].astype(np.int64)),
        (1, good[1][1:]),
        (2, good[2].astype(np.float32)),
        (3, good[3] - 1),
        (3, good[3][1:]),
        (4, good[4] + 1000),
        (4, good[4].astype(np.int32)),
        (5, good[5][:-1]),
        (5, good[5].astype(np.float32)),
    ):
        wrong = [bad if i == j else array for j, array in enumerate(good)]
        with pytest.raises(ValueError, match=r"must be|but|not in"):
            lexical._lexical.add(*wrong)


def test_the_example() -> None:
    assert doctest.testmod(lexical).failed == 0
