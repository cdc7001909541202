"""Floating-point operations of a function's matrix products."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
from jax.extend import core

from models.attention import flash
from models.attention.standard import standard_attention
from models.machine import assumed, this_machine, whole_sequences

_CUDNN_PRODUCTS = {
    "dot_product_attention_fwd_wrapper": 2,
    "dot_product_attention_bwd_wrapper": 4,
}


def product_flops(function: Callable, *arguments: Any) -> int:
    """Count FLOPs of the matrix products in `function(*arguments)`, two per multiply-add.

    The body of a `scan` counts once per iteration, that of a `while` once. Of the branches of a
    `cond`, the one with the most operations counts. The models' GPU kernels, whose loops have no
    known trip count, are replaced by their reference implementations. cuDNN's attention counts as
    the products of exact attention, two forward and four backward; its kernel repeats some.
    Elementwise operations are not counted.

    Args:
        function: Function to count.
        *arguments: Its arguments: arrays or `jax.ShapeDtypeStruct`s.
    """
    with _reference_forms():
        # Wrapped anew, as JAX would reuse the trace of a function traced outside this context.
        return _count(jax.make_jaxpr(lambda *args: function(*args))(*arguments).jaxpr)


@contextlib.contextmanager
def _reference_forms() -> Iterator[None]:
    """Trace reference implementations instead of kernels, with loops over whole sequences."""
    without_kernels = this_machine()._replace(runs_kernels=False)
    without_flash = mock.patch.object(flash, "flash_attention", _without_query_mask)
    with assumed(without_kernels), without_flash, whole_sequences():
        yield


def _without_query_mask(*arrays: jax.Array, query_mask: Any = None, **options: Any) -> jax.Array:
    del query_mask  # changes only the outputs at padding
    return standard_attention(*arrays, **options)


def _count(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            contracted_size = math.prod(shape[axis] for axis in contracted)
            total += 2 * contracted_size * equation.outvars[0].aval.size
        elif equation.primitive.name in _CUDNN_PRODUCTS:
            queries, keys = (variable.aval.shape for variable in equation.invars[:2])
            *_, length, _, _ = keys  # [..., batch, length, heads, head_dim]
            products = _CUDNN_PRODUCTS[equation.primitive.name]
            total += products * 2 * math.prod(queries) * length
        elif equation.primitive.name == "cond":
            total += max(_count(branch.jaxpr) for branch in equation.params["branches"])
        else:
            iterations = equation.params.get("length", 1)
            total += iterations * sum(_count(jaxpr) for jaxpr in _sub_jaxprs(equation.params))
    return total


def _sub_jaxprs(params: dict[str, Any]) -> list[core.Jaxpr]:
    jaxprs = []
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                jaxprs.append(item.jaxpr)
            elif isinstance(item, core.Jaxpr):
                jaxprs.append(item)
    return jaxprs
