"""One BLAS thread while packs share the cores, whichever thread asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest
from threadpoolctl import threadpool_limits

from builders import assert_same
from hplus import HPlus
from hplus.backbones.threads import _libraries, one_blas_thread

QUERIES = [
    "type 2 diabetes",
    "first-line drug for diabetes in chronic kidney disease",
    "ECG changes in hypokalaemia",
    "irreversible inhibition of platelets by aspirin",
]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """More than one, set by the main thread, which threadpoolctl then takes for the only one that
    may set them."""
    with threadpool_limits(2, "blas"):
        if blas() <= {1}:
            pytest.skip("this BLAS has one thread")
        yield


def blas() -> set[int]:
    """Of the libraries that are limited; others may have been loaded since."""
    return {library.num_threads for library in _libraries().lib_controllers}


def in_a_thread(work: Callable[[], None]) -> None:
    thread = Thread(target=work)
    thread.start()
    thread.join()


def test_every_thread_can_set_and_restore_the_limit() -> None:
    before = blas()
    seen: list[set[int]] = []

    def work() -> None:
        with one_blas_thread():
            seen.append(blas())
        seen.append(blas())

    work()
    in_a_thread(work)
    work()
    assert seen == [{1}, before] * 3


def test_the_last_one_out_restores_the_limit_of_the_first_one_in() -> None:
    before = blas()
    inside, left = Barrier(2), Barrier(2)

    def first() -> None:
        with one_blas_thread():
            inside.wait()
        left.wait()

    thread = Thread(target=first)
    thread.start()
    with one_blas_thread():
        inside.wait()
        left.wait()
        assert blas() == {1}
    thread.join()
    assert blas() == before


def test_a_query_has_the_same_vectors_in_every_thread(mini: HPlus) -> None:
    """Also if the main thread was the first to set BLAS to one thread."""
    expected = [mini.encode_query(query) for query in QUERIES]
    for threads in (1, 4):
        with ThreadPoolExecutor(threads) as pool:
            for found, wanted in zip(pool.map(mini.encode_query, QUERIES), expected, strict=True):
                assert_same(found, wanted)
