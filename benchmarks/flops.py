"""Counts the floating-point operations of a function's matrix products."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
from jax.extend import core

from models.attention import flash
from models.attention.blocks import whole_sequences
from models.attention.standard import standard_attention
from models.machine import assumed, this_machine

_CUDNN_PRODUCTS = {
    "dot_product_attention_fwd_wrapper": 2,
    "dot_product_attention_bwd_wrapper": 4,
}


def product_flops(function: Callable, *arguments: Any) -> int:
    """Two operations for each multiply-and-add in `function(*arguments)`; arguments may be shapes.

    A loop of known length (`scan`) counts in each turn, a `while` once. Of the branches of a
    condition (platforms are branches too) the one with most operations counts. The models' GPU
    kernels, whose loops do not tell their turns, count as their plain forms. cuDNN's attention
    counts as the products of exact attention, two forward and four backward; its kernel repeats
    some. Elementwise work is left out.
    """
    with _plain_forms():
        # A function of its own: JAX would take the trace of one that was traced outside.
        return _count(jax.make_jaxpr(lambda *own: function(*own))(*arguments).jaxpr)


@contextlib.contextmanager
def _plain_forms() -> Iterator[None]:
    """Inside, all turns count, no kernel is preferred, that of exact attention is a plain form."""
    plain = this_machine()._replace(runs_kernels=False)
    in_full = mock.patch.object(flash, "flash_attention", _without_query_mask)
    with assumed(plain), in_full, whole_sequences():
        yield


def _without_query_mask(*arrays: jax.Array, query_mask: Any = None, **options: Any) -> jax.Array:
    del query_mask  # which changes nothing at tokens
    return standard_attention(*arrays, **options)


def _count(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            inner = math.prod(shape[axis] for axis in contracted)
            total += 2 * inner * equation.outvars[0].aval.size
        elif equation.primitive.name in _CUDNN_PRODUCTS:
            queries, keys = (variable.aval.shape for variable in equation.invars[:2])
            *_, length, _, _ = keys  # [..., batch, length, heads, head_dim]
            products = _CUDNN_PRODUCTS[equation.primitive.name]
            total += products * 2 * math.prod(queries) * length
        elif equation.primitive.name == "cond":
            total += max(_count(branch.jaxpr) for branch in equation.params["branches"])
        else:
            turns = equation.params.get("length", 1)
            total += turns * sum(_count(inner) for inner in _inner(equation.params))
    return total


def _inner(params: dict[str, Any]) -> list[core.Jaxpr]:
    found = []
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                found.append(item.jaxpr)
            elif isinstance(item, core.Jaxpr):
                found.append(item)
    return found
