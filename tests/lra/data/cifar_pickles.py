"""Pickles as the Python version of CIFAR-10 has them."""

import pickle

import numpy as np


def python2_pickle(values: np.ndarray, labels: list[int]) -> bytes:
    """A batch of CIFAR-10 as Python 2 and its NumPy pickled it (protocol 2), opcode by opcode."""

    def text(content: bytes) -> bytes:
        return pickle.BINSTRING + len(content).to_bytes(4, "little") + content

    def integer(value: int) -> bytes:
        return pickle.BININT + value.to_bytes(4, "little", signed=True)

    def name(module: bytes, attribute: bytes) -> bytes:
        return pickle.GLOBAL + module + b"\n" + attribute + b"\n"

    array = (
        *(name(b"numpy.core.multiarray", b"_reconstruct"), name(b"numpy", b"ndarray")),
        *(integer(0), pickle.TUPLE1, text(b"b"), pickle.TUPLE3, pickle.REDUCE),
        *(pickle.MARK, integer(1), *map(integer, values.shape), pickle.TUPLE2),
        *(name(b"numpy", b"dtype"), text(b"u1"), integer(0), integer(1), pickle.TUPLE3),
        *(pickle.REDUCE, pickle.MARK, integer(3), text(b"|"), *[pickle.NONE] * 3),
        *(integer(-1), integer(-1), integer(0), pickle.TUPLE, pickle.BUILD),
        *(pickle.NEWFALSE, text(values.tobytes()), pickle.TUPLE, pickle.BUILD),
    )
    listed = (pickle.EMPTY_LIST, pickle.MARK, *map(integer, labels), pickle.APPENDS)
    items = (text(b"batch_label"), text(b"one"), text(b"labels"), *listed, text(b"data"), *array)
    start = (pickle.PROTO, b"\x02", pickle.EMPTY_DICT, pickle.MARK)
    return b"".join((*start, *items, pickle.SETITEMS, pickle.STOP))
