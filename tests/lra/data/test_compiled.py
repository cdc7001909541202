import numba

from lra.data.compiled import compiled


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
