import itertools
import threading

import numba
import pytest

from lra.data.compiled import compiled, in_threads


def double(x):
    return 2 * x


def test_compiles():
    assert isinstance(compiled(double), numba.core.dispatcher.Dispatcher)
    assert compiled(double)(21) == 42


def test_works_where_nothing_can_be_cached(monkeypatch):
    njit = numba.njit

    def without_place(*, nogil, cache=False):
        if cache:
            raise RuntimeError("cannot cache function: no locator available for file")
        return njit(nogil=nogil)

    monkeypatch.setattr(numba, "njit", without_place)
    assert compiled(double)(21) == 42


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("number", [0, 1, 2, 20])
def test_results_of_threads_come_in_order(workers, number):
    assert list(in_threads(divmod, ((i, 7) for i in range(number)), workers)) == [
        divmod(i, 7) for i in range(number)
    ]


def test_threads_are_at_most_two_calls_each_ahead_and_end_with_the_iterator():
    made = []
    results = in_threads(made.append, ((i,) for i in itertools.count()), 2)
    next(results)
    next(results)
    results.close()
    assert 2 <= len(made) <= 5
    assert not any(t.name.startswith("ThreadPoolExecutor") for t in threading.enumerate())
