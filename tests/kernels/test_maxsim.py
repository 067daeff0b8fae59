"""Every kernel against the plain reference, on ragged data of every type and shape.

`make test-kernels` runs these once more with the compiled kernel under the sanitizers.
"""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.kernels import implementation, int4, maxima, maxsim, reference, weighted_maxsim
from hplus.kernels import threads as threading
from hplus.kernels.int4 import numbers, packed, split
from hplus.kernels.reference import Mean, Rows, Scales, shares_of
from hplus.types import F32, F64, I64

KERNELS = list(maxsim.KERNELS)
COMPILED = [name for name in KERNELS if name.startswith("C")]
compiled = pytest.mark.skipif(not COMPILED, reason="the extension is not compiled here")
some = settings(deadline=None, max_examples=60)
# u1: int4, two numbers a byte.
DTYPES = ["f4", "f2", "i1", "u1"]
EPSILON = 2.0**-24


@dataclass(frozen=True)
class Case:
    """One call of a kernel."""

    query: F32
    weights: F32
    vectors: Rows
    scales: Scales | None
    starts: I64
    ends: I64
    mean: Mean | None = None

    def scores(self, kernel: str, threads: int = 1) -> F32:
        return weighted_maxsim(*self.arguments(), kernel=kernel, threads=threads)

    def reference(self) -> F32:
        return reference.weighted_maxsim(*self.arguments())

    def arguments(self) -> tuple[F32, F32, Rows, Scales | None, I64, I64, Mean | None]:
        return (*self.raw()[:6], self.mean)

    def raw(self) -> tuple[Any, ...]:
        """As the compiled kernels take them."""
        documents = (self.vectors, self.scales, self.starts, self.ends)
        return (self.query, self.weights, *documents, *(self.mean or (None, None)))


def bound(case: Case) -> F64:
    """What a kernel and the reference may differ by, f64[n], one bound per document.

    f32: a sum of r products errs by r + 4 roundings of the sum of their absolute values, in both.
    int8 and int4: each number of the query is off by at most half a step (maxsim.py).
    """
    width = case.query.shape[1]
    query = np.abs(case.query).astype(np.float64)
    rows = np.abs(numbers(case.vectors, width).astype(np.float64))
    if case.scales is not None:
        rows *= np.abs(case.scales.astype(np.float64))[:, None]
    error = 2 * (width + 4) * EPSILON * (query @ rows.T)  # [q, M]
    if case.vectors.itemsize == 1:
        steps = query.max(axis=1) / min(32639, (2**31 - 1) // (128 * width))
        error += steps[:, None] / 2 * rows.sum(axis=1)
    if case.mean is not None:
        shares = np.abs(shares_of(case.mean, case.scales, 0, len(rows)).astype(np.float64))
        mean = np.abs(case.mean.vector[:width].astype(np.float64))
        error += 2 * (width + 4) * EPSILON * np.outer(query @ mean, shares)
        if case.vectors.itemsize == 1:
            error += np.outer(steps / 2 * mean.sum(), shares)
    weights = np.abs(case.weights.astype(np.float64))
    tiny = 1e-37 * (1 + weights.sum())  # what is lost below the smallest numbers
    return np.array(
        [
            weights @ error[:, start:end].max(axis=1, initial=0) + tiny
            for start, end in zip(case.starts, case.ends, strict=True)
        ]
    )


def assert_close(case: Case, kernel: str) -> None:
    scores = case.scores(kernel)
    assert scores.dtype == np.float32
    assert scores.shape == case.starts.shape
    difference = np.abs(scores.astype(np.float64) - case.reference())
    assert (difference <= bound(case)).all(), (difference / bound(case)).max()


@st.composite
def cases(draw: st.DrawFn, dtype: str | None = None) -> Case:
    """Documents that are any runs of the rows: empty, of one row, overlapping, repeated."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    units, width = draw(st.integers(1, 20)), draw(st.integers(1, 130))
    columns = width + draw(st.sampled_from([0, 0, 1, 7, 32]))
    rows, documents = draw(st.integers(0, 60)), draw(st.integers(0, 30))
    dtype = dtype or draw(st.sampled_from(DTYPES))
    if dtype == "i1":
        vectors = rng.integers(-127, 128, (rows, columns)).astype(np.int8)
    elif dtype == "u1":
        columns += columns % 2  # two numbers share a byte
        vectors = packed(rng.integers(-8, 8, (rows, columns)).astype(np.int8))
    else:
        sizes = 10.0 ** rng.integers(-6, 1, (rows, 1))  # down to f16's subnormal numbers
        vectors = (rng.standard_normal((rows, columns)) * sizes).astype(dtype)
    scale_type = draw(st.sampled_from([None, "f4", "f2"]))
    scales = None if scale_type is None else rng.random(rows).astype(scale_type)
    if scales is not None:
        scales[rng.random(rows) < 0.1] = 0
    kind = draw(st.sampled_from(["no mean", "a mean", "a mean with shares"]))
    mean = None
    if kind != "no mean":
        shares = rng.standard_normal(rows).astype(np.float32) if kind.endswith("shares") else None
        mean = Mean(rng.standard_normal(columns).astype(np.float32), shares)
    starts = rng.integers(0, rows + 1, documents)
    lengths = rng.integers(0, draw(st.sampled_from([1, 2, 5, 61])), documents)
    if documents > 1 and draw(st.booleans()):
        starts[-1], lengths[-1] = starts[0], lengths[0]
    return Case(
        query=rng.standard_normal((units, width)).astype(np.float32),
        weights=(rng.random(units) * rng.integers(0, 2, units)).astype(np.float32),
        vectors=vectors,
        scales=scales,
        starts=starts,
        ends=np.minimum(starts + lengths, rows),
        mean=mean,
    )


def example(dtype: str = "f4", *, rows: int = 40, width: int = 24, columns: int = 24) -> Case:
    """A fixed case of five documents."""
    rng = np.random.default_rng(1)
    vectors = (rng.standard_normal((rows, columns)) * 40).clip(-127, 127)
    vectors = packed((vectors / 16).astype(np.int8)) if dtype == "u1" else vectors.astype(dtype)
    starts = np.array([0, 7, 7, 12, 39])
    return Case(
        query=rng.standard_normal((6, width)).astype(np.float32),
        weights=rng.random(6).astype(np.float32),
        vectors=vectors,
        scales=rng.random(rows).astype(np.float32),
        starts=starts,
        ends=np.array([7, 7, 12, 39, 40]),
    )


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(case=cases())
def test_agrees_with_the_reference(kernel: str, case: Case) -> None:
    assert_close(case, kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(case=cases())
def test_maxima_are_what_is_weighed(kernel: str, case: Case) -> None:
    """One unit of weight 1 scores its maximum; reference and kernel agree unit by unit."""
    query, _, *documents = case.arguments()
    found = maxima(query, *documents, kernel=kernel)
    assert found.dtype == np.float32
    assert found.shape == (len(case.starts), len(query))
    expected = reference.maxima(query, *documents)
    for unit in range(len(query)):
        weights = np.zeros(len(query), np.float32)
        weights[unit] = 1
        alone = replace(case, weights=weights)
        np.testing.assert_array_equal(found[:, unit], alone.scores(kernel))
        difference = np.abs(found[:, unit].astype(np.float64) - expected[:, unit])
        assert (difference <= bound(alone)).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_of_zeros_have_no_share_of_the_mean(kernel: str) -> None:
    """A row whose scale is 0 is a vector of zeros; every other one has the mean in it."""
    mean = np.array([3, -4], np.float32)
    rows, scales = np.zeros((2, 2), np.int8), np.array([0, 1], np.float16)
    starts = np.arange(2)
    case = Case(
        np.eye(2, dtype=np.float32), np.ones(2, np.float32), rows, scales, starts, starts + 1
    )
    found = replace(case, mean=Mean(mean)).scores(kernel)
    np.testing.assert_allclose(found, [0, -1], rtol=1e-4)
    half = replace(case, mean=Mean(mean, np.array([0.5, 0], np.float32)))
    np.testing.assert_allclose(half.scores(kernel), [-0.5, 0], rtol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(case=cases(), data=st.data())
def test_neighbours_do_not_matter(kernel: str, case: Case, data: st.DataObject) -> None:
    scores = case.scores(kernel)
    if len(scores):
        some_of_them = np.array(data.draw(st.lists(st.integers(0, len(scores) - 1), max_size=9)))
        chosen = some_of_them.astype(np.int64)
        fewer = replace(case, starts=case.starts[chosen], ends=case.ends[chosen])
        np.testing.assert_array_equal(fewer.scores(kernel), scores[chosen])


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(case=cases())
def test_threads_do_not_matter(kernel: str, case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "WORTH_A_THREAD", 1)
        for threads in (2, 3):
            np.testing.assert_array_equal(case.scores(kernel, threads), case.scores(kernel))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_get_runs_of_about_as_many_rows(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def kernel(*arguments: Any) -> F32:
        starts, ends = arguments[-3:-1]
        runs.append(int((ends - starts).sum()))
        return reference.weighted_maxsim(*arguments)

    monkeypatch.setitem(maxsim.KERNELS, "noted", kernel)
    monkeypatch.setattr(threading, "WORTH_A_THREAD", 1)
    starts = np.arange(0, 40, 2)
    case = replace(example(), starts=starts, ends=starts + 2)
    np.testing.assert_array_equal(case.scores("noted", threads), case.reference())
    assert len(runs) == threads
    assert max(runs) - min(runs) <= 4


@pytest.mark.parametrize("kernel", KERNELS)
@some
@given(case=cases("u1"))
def test_int4_scores_as_int8_of_the_same_codes(kernel: str, case: Case) -> None:
    same = replace(case, vectors=split(case.vectors))
    np.testing.assert_array_equal(case.scores(kernel), same.scores(kernel))


def test_the_example_of_int4() -> None:
    assert doctest.testmod(int4).failed == 0
    every = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(packed(split(every)), every)
    assert split(np.array([[0xF0]], np.uint8)).tolist() == [[-8, 7]]


@compiled
@some
@given(case=cases("i1"))
def test_int8_is_the_same_on_every_processor(case: Case) -> None:
    first, *others = (case.scores(kernel) for kernel in COMPILED)
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("width", [1, 16, 33, 128, 512, 513, 4096])
def test_extreme_codes_do_not_overflow(kernel: str, width: int) -> None:
    """-128 too, which our writer never produces."""
    query = np.ones((3, width), np.float32)
    query[1] = -1
    vectors = np.repeat(np.array([[-128], [127], [-127]], np.int8), width, axis=1)
    starts = np.arange(3)
    case = Case(query, np.ones(3, np.float32), vectors, None, starts, starts + 1)
    assert_close(case, kernel)
    expected = [-128 * width, 127 * width, -127 * width]
    np.testing.assert_allclose(case.scores(kernel), expected, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_f16_number_is_read_right(kernel: str) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = patterns[~np.isnan(patterns)]
    one, starts = np.ones((1, 1), np.float32), np.arange(len(numbers))
    for width in (1, 8):  # by the scalar and by the vector conversion
        rows = np.zeros((len(numbers), width), np.float16)
        rows[:, 0] = numbers
        query = np.ones((1, width), np.float32)
        scores = weighted_maxsim(query, one[0], rows, None, starts, starts + 1, kernel=kernel)
        np.testing.assert_array_equal(scores, numbers.astype(np.float32))
    ones = np.ones((len(numbers), 1), np.float32)
    scores = weighted_maxsim(one, one[0], ones, numbers, starts, starts + 1, kernel=kernel)
    np.testing.assert_array_equal(scores, numbers.astype(np.float32))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_long_document_and_a_wide_query(kernel: str, dtype: str) -> None:
    case = example(dtype, rows=9000, width=120, columns=130)
    assert_close(replace(case, starts=case.starts * 0, ends=case.ends * 200), kernel)
    many = replace(case, query=np.tile(case.query, (50, 1)), weights=np.ones(300, np.float32))
    assert_close(many, kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_maps_views_and_odd_addresses(kernel: str, dtype: str, tmp_path: Path) -> None:
    case = example(dtype)
    expected = case.scores(kernel)
    file = tmp_path / "vectors"
    file.write_bytes(b"x" + case.vectors.tobytes())
    mapped = np.memmap(file, dtype, "r", offset=1, shape=case.vectors.shape)
    np.testing.assert_array_equal(replace(case, vectors=mapped).scores(kernel), expected)
    wide = np.repeat(np.concatenate([case.vectors, case.vectors], axis=1), 2, axis=0)
    second = wide[::2, case.vectors.shape[1] :]  # rows apart, and not from the first column
    np.testing.assert_array_equal(replace(case, vectors=second).scores(kernel), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_small_arguments_need_not_be_contiguous(kernel: str) -> None:
    case = example()
    assert case.scales is not None
    apart = Case(
        np.asfortranarray(case.query),
        np.repeat(case.weights, 2)[::2],
        case.vectors,
        np.repeat(case.scales, 2)[::2],
        np.repeat(case.starts, 2)[::2],
        np.repeat(case.ends, 2)[::2],
    )
    np.testing.assert_array_equal(apart.scores(kernel), case.scores(kernel))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_to_do(kernel: str, dtype: str) -> None:
    case = example(dtype)
    none = np.zeros(0, np.int64)
    assert replace(case, starts=none, ends=none).scores(kernel, threads=3).tolist() == []
    no_units = replace(case, query=case.query[:0], weights=case.weights[:0])
    assert no_units.scores(kernel).tolist() == [0] * 5
    assert replace(case, query=case.query[:, :0]).scores(kernel).tolist() == [0] * 5
    no_rows = replace(case, vectors=case.vectors[:0], scales=None, starts=none, ends=none)
    assert no_rows.scores(kernel).tolist() == []
    query, _, *documents = case.arguments()
    assert maxima(query[:0], *documents, kernel=kernel).shape == (5, 0)
    assert maxima(query, *documents[:2], none, none, kernel=kernel).shape == (0, 6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_stay_where_they_are(kernel: str, dtype: str, bad: float) -> None:
    case = example(dtype)
    assert case.scales is not None
    expected = case.scores(kernel)
    spoilt = case.scales.copy()
    spoilt[0] = bad
    np.testing.assert_array_equal(replace(case, scales=spoilt).scores(kernel)[1:], expected[1:])
    if case.vectors.itemsize > 1:
        vectors = case.vectors.copy()
        vectors[0, 3] = bad
        scores = replace(case, vectors=vectors).scores(kernel)
        np.testing.assert_array_equal(scores[1:], expected[1:])
    for argument in ("query", "weights"):
        array = getattr(case, argument).copy()
        array.flat[0] = bad
        replace(case, **{argument: array}).scores(kernel)  # any answer will do


BAD = {
    "query of f64": ("query", lambda x: x.astype(np.float64)),
    "query with one axis": ("query", lambda x: x[0]),
    "query that is a list": ("query", lambda x: x.tolist()),
    "query too wide": ("query", lambda _: np.zeros((6, 25), np.float32)),
    "too few weights": ("weights", lambda x: x[:-1]),
    "weights with two axes": ("weights", lambda x: x[:, None]),
    "vectors of i16": ("vectors", lambda x: x.astype(np.int16)),
    "vectors of u32": ("vectors", lambda x: x.astype(np.uint32)),
    "vectors in the other byte order": ("vectors", lambda x: x.astype(">f4")),
    "vectors with one axis": ("vectors", lambda x: x[0]),
    "vectors whose columns stand apart": ("vectors", lambda x: np.asfortranarray(x)),
    "vectors of bytes": ("vectors", lambda x: x.tobytes()),
    "too few scales": ("scales", lambda x: x[:-1]),
    "scales of f64": ("scales", lambda x: x.astype(np.float64)),
    "scales with no axis": ("scales", lambda x: x[0]),
    "starts of i32": ("starts", lambda x: x.astype(np.int32)),
    "starts of f64": ("starts", lambda x: x.astype(np.float64)),
    "too few starts": ("starts", lambda x: x[:-1]),
    "a start below 0": ("starts", lambda _: np.array([0, 7, -1, 12, 39])),
    "a start after its end": ("starts", lambda _: np.array([0, 7, 7, 40, 39])),
    "the smallest start": ("starts", lambda _: np.array([-(2**63), 7, 7, 12, 39])),
    "a mean of f64": ("mean", lambda _: Mean(np.zeros(24))),
    "a mean too short": ("mean", lambda _: Mean(np.zeros(23, np.float32))),
    "shares of f64": ("mean", lambda _: Mean(np.zeros(24, np.float32), np.zeros(40))),
    "too few shares": ("mean", lambda _: Mean(np.zeros(24, np.float32), np.zeros(39, "f4"))),
    "ends of u64": ("ends", lambda x: x.astype(np.uint64)),
    "too few ends": ("ends", lambda x: x[1:]),
    "an end after the rows": ("ends", lambda _: np.array([7, 7, 12, 39, 41])),
    "the largest end": ("ends", lambda _: np.array([7, 7, 12, 39, 2**63 - 1])),
}
bad_arguments = pytest.mark.parametrize(("argument", "spoil"), BAD.values(), ids=BAD)


@pytest.mark.parametrize("kernel", KERNELS)
@bad_arguments
def test_bad_arguments(kernel: str, argument: str, spoil: Any) -> None:
    case = example()
    with pytest.raises(ValueError, match=r"must|has|have|but"):
        replace(case, **{argument: spoil(getattr(case, argument))}).scores(kernel)


@compiled
@bad_arguments
def test_the_compiled_kernel_trusts_nobody(argument: str, spoil: Any) -> None:
    """It checks again what the caller has checked: a wrong row number must not become a read."""
    score = importlib.import_module("hplus.kernels._maxsim").score
    case = example()
    bad = replace(case, **{argument: spoil(getattr(case, argument))})
    for level in range(3):
        with pytest.raises(ValueError, match=r"must be|not in|but|columns"):
            score(*bad.raw(), np.zeros(5, np.float32), level)


@compiled
def test_the_compiled_kernel_takes_no_other_arrays() -> None:
    score = importlib.import_module("hplus.kernels._maxsim").score
    arguments = example().raw()
    fixed = np.zeros(5, np.float32)
    fixed.flags.writeable = False
    for scores in (fixed, np.zeros(4, np.float32), np.zeros(5), np.zeros(10, np.float32)[::2]):
        with pytest.raises(ValueError, match=r"scores"):
            score(*arguments, scores, False)
    query, _, *documents = arguments
    for count in (0, 5, 29, 31):  # six maxima for each of five documents
        with pytest.raises(ValueError, match=r"scores of 6 a document"):
            score(query, None, *documents, np.zeros(count, np.float32), False)
    with pytest.raises(ValueError, match=r"scores of 0 a document"):
        score(query[:0], None, *documents, np.zeros(5, np.float32), False)
    for query in (np.asfortranarray(arguments[0]), np.repeat(arguments[0], 2, axis=0)[::2]):
        with pytest.raises(ValueError, match="query must be a contiguous"):
            score(query, *arguments[1:], np.zeros(5, np.float32), False)
    too_wide = np.zeros((1, maxsim.MAX_WIDTH + 1), np.float32)
    none = np.zeros(0, np.int64)
    wide = (too_wide, fixed[:1], too_wide, None, none, none, None, None)
    with pytest.raises(ValueError, match="65537"):
        score(*wide, np.zeros(0, np.float32), False)


def test_messages_have_both_numbers() -> None:
    case = example()
    with pytest.raises(ValueError, match=r"document 4 has rows 39:41; they must lie in 0:40"):
        replace(case, ends=case.ends + np.array([0, 0, 0, 0, 1])).scores("numpy")
    with pytest.raises(ValueError, match=r"query has 6 units, but there are 5 weights"):
        replace(case, weights=case.weights[1:]).scores("numpy")
    with pytest.raises(ValueError, match=r"threads must be at least 1, not 0"):
        case.scores("numpy", threads=0)
    with pytest.raises(ValueError, match=r"query has 65537 columns, vectors have 65537"):
        example(width=65_537, columns=65_537).scores("numpy")


def chosen(wanted: str) -> subprocess.CompletedProcess[str]:
    program = "from hplus.kernels import implementation; print(implementation())"
    environment = {**os.environ, "HPLUS_KERNELS": wanted}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )


def test_the_implementation_can_be_forced() -> None:
    assert implementation() in KERNELS
    assert chosen("").stdout.strip() == KERNELS[0]
    assert chosen("numpy").stdout.strip() == "numpy"
    if COMPILED:
        assert chosen("portable").stdout.strip() == "C, portable"
    assert "HPLUS_KERNELS is 'cuda'" in chosen("cuda").stderr


def test_the_example() -> None:
    assert doctest.testmod(maxsim) == doctest.TestResults(failed=0, attempted=8)


@pytest.mark.skipif("C, AVX512" not in KERNELS, reason="the processor has no AVX-512 VNNI")
@pytest.mark.parametrize("width", [1, 31, 32, 33, 64, 128, 384])
def test_avx512_scores_int8_as_avx2_does_to_the_last_bit(width: int) -> None:
    random = np.random.default_rng(width)
    vectors = random.integers(-127, 128, (50, width)).astype(np.int8)
    query = random.normal(size=(7, width)).astype(np.float32)
    weights, scales = np.ones(7, np.float32), random.random(50).astype(np.float16)
    starts, ends = np.array([0, 3, 3, 20]), np.array([3, 3, 20, 50])
    arguments = (query, weights, vectors, scales, starts, ends)
    wide, narrow = (weighted_maxsim(*arguments, kernel=f"C, {name}") for name in ("AVX512", "AVX2"))
    assert wide.tolist() == narrow.tolist()
