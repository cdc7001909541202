"""Compiled programs of ours, and of `jax.nn`, for `benchmarks.worker`.

The attention module is the one of the encoder: four projections with biases around an attention,
one instance, parameters float32 and activations in the case's format. Dropout is 0 and positions
are all real. The mask is an argument, so that nothing about it is known when compiling but this:
loops over blocks have the turns of whole sequences, for operations and bytes to be counted.

forward             out
forward_backward    out and the gradients of all parameters and of the input, from a given
                    gradient of out; with a key, so Reformer draws its rotations as in training
model               a training step of the configuration's encoder on random bytes
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.cases import Case, Contender
from benchmarks.hlo_cost import cost_of, memory_of
from lra import environment
from models.attention import make, options_of
from models.attention.blocks import whole_sequences
from models.block import MultiHeadAttention

_TEXT_CLASSES = 2


class Program:
    """A compiled function; its arguments are made when it first runs.

    So its memory is known even if the arguments alone would not fit.

    Args:
        function: to compile.
        make_arguments: returns its arguments, a tuple of trees of arrays.
        parts: in how many it takes a batch.
    """

    def __init__(self, function, make_arguments: Callable[[], tuple], parts: int | None = None):
        self._shapes = jax.eval_shape(make_arguments)
        with whole_sequences():
            self._compiled = jax.jit(function).lower(*self._shapes).compile()
        self._function, self._make_arguments, self._parts = function, make_arguments, parts

    @functools.cached_property
    def _arguments(self) -> tuple:
        return jax.block_until_ready(self._make_arguments())

    @property
    def argument_bytes(self) -> int:
        """Of parameters and inputs."""
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(self._shapes))

    @property
    def analysis(self) -> dict[str, float]:
        """Memory, operations and moved bytes of the compiled program; in how many parts it runs."""
        costs = cost_of(self._compiled, self._function, self._shapes)
        return {"memory": memory_of(self._compiled), **costs, "parts": self._parts}

    @property
    def text(self) -> str:
        """Of the compiled program, which names its operations."""
        return self._compiled.as_text()

    def run(self) -> None:
        """One call, waited for."""
        jax.block_until_ready(self._compiled(*self._arguments))

    def forget(self) -> None:
        """Frees what the last call returned: nothing is kept."""

    def device_peak(self, since: int | None = None) -> int | None:
        """The most memory that the device had in use so far; None if that is `since` or less.

        It cannot be reset, so a call that needs less than an earlier one is not seen.
        """
        peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        return peak if since is None or peak is None or peak > since else None


class JaxNN(nnx.Module):
    """`jax.nn.dot_product_attention`, without a mask, behind the contract of our attentions."""

    shares_qk = False

    def __call__(self, q, k, v, mask, *, key=None):
        """Attends."""
        del mask, key
        return jax.nn.dot_product_attention(q, k, v)


def configure(threads: int | None, matmul_precision: str, platform: str | None) -> None:
    """Called before anything is compiled. Cores set the threads, the environment the platform."""
    del threads, platform
    environment.check_jax()
    jax.config.update("jax_default_matmul_precision", matmul_precision)


def platform() -> str:
    """`cpu`, `gpu` or `tpu`."""
    return jax.default_backend()


def describe() -> dict[str, Any]:
    """Device, its memory where it tells, versions and commit."""
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "platform": platform(),
        "device": environment.device_name(),
        "device_bytes": stats.get("bytes_limit"),
        "versions": environment.versions(),
        "commit": environment.commit(),
    }


def release() -> None:
    """Frees compiled programs."""
    jax.clear_caches()


def check(contender: Contender, case: Case) -> None:
    """Raises ValueError if the method does not take such a case; nothing is computed."""
    if case.benchmark == "model":
        _training(contender, case)
        return
    graphdef, params, rest = _abstract(contender, case)
    x, mask = _inputs(case)
    jax.eval_shape(functools.partial(_forward, graphdef), params, rest, x, mask)


def build(contender: Contender, case: Case) -> Program:
    """Compiles a case.

    Raises:
        ValueError: the method does not take it.
    """
    if case.benchmark == "model":
        return Program(*_training(contender, case))
    graphdef, _, _ = _abstract(contender, case)
    with_gradients = case.mode == "forward_backward"

    def make_arguments():
        params, rest = jax.jit(lambda: _split(contender, case)[1:])()
        x, mask = _inputs(case)
        given = (jax.random.key(3), _normal(2, x)) if with_gradients else ()
        return params, rest, _normal(1, x), jnp.ones(mask.shape, mask.dtype), *given

    function = _forward_backward if with_gradients else _forward
    return Program(functools.partial(function, graphdef), make_arguments)


def _normal(seed: int, like: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), like.shape, like.dtype)


def _forward(graphdef, params, rest, x, mask, key=None):
    return nnx.merge(graphdef, params, rest)(x, mask, key)


def _forward_backward(graphdef, params, rest, x, mask, key, cotangent):
    def attend(params, x):
        return _forward(graphdef, params, rest, x, mask, key)

    out, gradients = jax.vjp(attend, params, x)
    return out, gradients(cotangent)


def _inputs(case: Case) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    shape = (case.batch, case.length)
    dtype = jnp.dtype(case.dtype)
    return jax.ShapeDtypeStruct((*shape, case.dim), dtype), jax.ShapeDtypeStruct(shape, bool)


def _abstract(contender: Contender, case: Case) -> tuple:
    return nnx.split(nnx.eval_shape(lambda: _module(contender, case)), nnx.Param, ...)


def _split(contender: Contender, case: Case) -> tuple:
    return nnx.split(_module(contender, case), nnx.Param, ...)


def _module(contender: Contender, case: Case) -> MultiHeadAttention:
    rngs = nnx.Rngs(params=0, attention=1)
    sizes = {"heads": case.heads, "head_dim": case.head_dim}
    if contender.peer == "jax.nn":
        attention = JaxNN()
    else:
        method, options = contender.method, contender.options
        none = {"dropout": 0.0} if "dropout" in options_of(method) else {}
        attention = make(method, length=case.length, **sizes, rngs=rngs, **(none | options))
    dtype = jnp.dtype(case.dtype)
    return MultiHeadAttention(attention, dim=case.dim, **sizes, dtype=dtype, rngs=rngs)


def _tuples(value: Any) -> Any:
    """The value with tuples instead of lists, as configurations have them."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _training(contender: Contender, case: Case) -> tuple:
    """The training step of a configuration of Text, a function that makes its arguments, parts."""
    from lra.arrays import Batch
    from lra.optimizer import make_optimizer
    from lra.parts import number_of_parts
    from lra.settings import load_config
    from lra.state import Microbatches, init_state, make_model, train_step
    from lra.tasks import get_task

    method, task = contender.method, get_task("text")
    overrides = [f"dtype={case.dtype}", f"train.batch_size={case.batch}"]
    overrides += [f"model.attention.{k}={_tuples(v)}" for k, v in contender.options.items()]
    config = load_config(f"configs/text.py:{method}", overrides)
    make_it = functools.partial(make_model, config, task, case.length)
    graphdef, _, _ = nnx.split(nnx.eval_shape(lambda: make_it(nnx.Rngs(0))), nnx.Param, ...)
    optimizer = make_optimizer(config.train)
    init = functools.partial(init_state, make=make_it, optimizer=optimizer)
    shape = (case.batch, case.length)
    parts = number_of_parts(case.batch, case.length * config.model.dim)
    step = functools.partial(
        train_step, graphdef=graphdef, optimizer=optimizer, microbatches=Microbatches(parts)
    )

    def make_arguments():
        ids = jax.random.randint(jax.random.key(1), shape, 1, task.vocab_size)
        batch = Batch(ids, jnp.ones(shape, bool), jnp.arange(shape[0]) % _TEXT_CLASSES)
        return jax.jit(init)(jax.random.key(0)), jnp.int32(1), batch, jax.random.key(2)

    return step, make_arguments, parts
