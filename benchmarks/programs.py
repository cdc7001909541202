"""Compiled programs of our attentions, and of `jax.nn`, for `benchmarks.worker`.

The attention module is that of the encoder: four projections with biases around an attention, with
float32 parameters and activations in the case's dtype. Dropout is 0 and there is no padding. The
mask is an argument, so programs are not specialised to it; but loops over blocks have the trip
counts of whole sequences, for FLOPs and bytes to be counted.

The modes compute:

forward             the output
forward_backward    the output, and the gradients of all parameters and of the input for a given
                    cotangent; with a key, so Reformer draws its rotations as in training
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
from models.attention.contract import Attention
from models.block import MultiHeadAttention
from models.machine import whole_sequences

_TEXT_CLASSES = 2


class Program:
    """A compiled function whose arguments are not created until it first runs.

    So its memory can be analysed even if the arguments alone do not fit.

    Args:
        function: Function to compile.
        make_arguments: Returns its arguments, a tuple of pytrees of arrays.
        parts: Number of microbatches into which it splits a batch.
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
        """Bytes of parameters and inputs."""
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(self._shapes))

    @property
    def analysis(self) -> dict[str, float]:
        """Memory, FLOPs, bytes accessed and number of microbatches of the compiled program."""
        costs = cost_of(self._compiled, self._function, self._shapes)
        return {"memory": memory_of(self._compiled), **costs, "parts": self._parts}

    @property
    def text(self) -> str:
        """HLO text of the compiled program."""
        return self._compiled.as_text()

    def run(self) -> None:
        """Call the program and wait for its results."""
        jax.block_until_ready(self._compiled(*self._arguments))

    def forget(self) -> None:
        """Free what the last call returned; a no-op, as nothing is kept."""

    def device_peak(self, since: int | None = None) -> int | None:
        """Return peak bytes in use on the device so far; None if they do not exceed `since`.

        The peak cannot be reset, so a call that needs less than an earlier one goes unnoticed.
        """
        peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        return peak if since is None or peak is None or peak > since else None


class JaxNN(Attention):
    """`jax.nn.dot_product_attention` without a mask, with the interface of our attentions."""

    def __call__(self, q, k, v, mask, *, key=None):
        """Compute exact attention over all positions."""
        del mask, key
        return jax.nn.dot_product_attention(q, k, v)


def configure(threads: int | None, matmul_precision: str, platform: str | None) -> None:
    """Configure JAX before anything is compiled.

    Threads and platform are ignored: CPU affinity and environment variables set them.
    """
    del threads, platform
    environment.check_jax()
    jax.config.update("jax_default_matmul_precision", matmul_precision)


def platform() -> str:
    """Return `cpu`, `gpu` or `tpu`."""
    return jax.default_backend()


def describe() -> dict[str, Any]:
    """Return the device, its memory (None if unknown), package versions and commit."""
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "platform": platform(),
        "device": environment.device_name(),
        "device_bytes": stats.get("bytes_limit"),
        "versions": environment.versions(),
        "commit": environment.commit(),
    }


def release() -> None:
    """Free compiled programs."""
    jax.clear_caches()


def check(contender: Contender, case: Case) -> None:
    """Check by abstract evaluation that the method supports a case.

    Raises:
        ValueError: If it does not.
    """
    if case.benchmark == "model":
        _training(contender, case)
        return
    graphdef, params, rest = _abstract_module(contender, case)
    x, mask = _inputs(case)
    jax.eval_shape(functools.partial(_forward, graphdef), params, rest, x, mask)


def build(contender: Contender, case: Case) -> Program:
    """Compile the program of a case.

    Raises:
        ValueError: If the method does not support the case.
    """
    if case.benchmark == "model":
        return Program(*_training(contender, case))
    graphdef, _, _ = _abstract_module(contender, case)
    with_gradients = case.mode == "forward_backward"

    def make_arguments():
        params, rest = jax.jit(lambda: _split_module(contender, case)[1:])()
        x, mask = _inputs(case)
        key_and_cotangent = (jax.random.key(3), _normal(2, x)) if with_gradients else ()
        full_mask = jnp.ones(mask.shape, mask.dtype)
        return params, rest, _normal(1, x), full_mask, *key_and_cotangent

    function = _forward_backward if with_gradients else _forward
    return Program(functools.partial(function, graphdef), make_arguments)


def _normal(seed: int, like: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), like.shape, like.dtype)


def _forward(graphdef, params, rest, x, mask, key=None):
    return nnx.merge(graphdef, params, rest)(x, mask, key)


def _forward_backward(graphdef, params, rest, x, mask, key, cotangent):
    def attend(params, x):
        return _forward(graphdef, params, rest, x, mask, key)

    out, vjp = jax.vjp(attend, params, x)
    return out, vjp(cotangent)


def _inputs(case: Case) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    shape = (case.batch, case.length)
    dtype = jnp.dtype(case.dtype)
    return jax.ShapeDtypeStruct((*shape, case.dim), dtype), jax.ShapeDtypeStruct(shape, bool)


def _abstract_module(contender: Contender, case: Case) -> tuple:
    return nnx.split(nnx.eval_shape(lambda: _make_module(contender, case)), nnx.Param, ...)


def _split_module(contender: Contender, case: Case) -> tuple:
    return nnx.split(_make_module(contender, case), nnx.Param, ...)


def _make_module(contender: Contender, case: Case) -> MultiHeadAttention:
    rngs = nnx.Rngs(params=0, attention=1)
    sizes = {"heads": case.heads, "head_dim": case.head_dim}
    if contender.peer == "jax.nn":
        attention = JaxNN()
    else:
        method, options = contender.method, contender.options
        no_dropout = {"dropout": 0.0} if "dropout" in options_of(method) else {}
        attention = make(method, length=case.length, **sizes, rngs=rngs, **(no_dropout | options))
    dtype = jnp.dtype(case.dtype)
    return MultiHeadAttention(attention, dim=case.dim, **sizes, dtype=dtype, rngs=rngs)


def _as_tuples(value: Any) -> Any:
    """Replace lists with tuples, which configurations use."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _training(contender: Contender, case: Case) -> tuple:
    """Return the arguments of `Program` for a training step of Text's configuration."""
    from lra.arrays import Batch
    from lra.optimizer import make_optimizer
    from lra.parts import mean_over_parts
    from lra.plan import Buckets, number_of_parts
    from lra.settings import load_config
    from lra.state import abstract_model, init_state, train_step
    from lra.tasks import get_task

    method, task = contender.method, get_task("text")
    overrides = [f"dtype={case.dtype}", f"train.batch_size={case.batch}"]
    overrides += [f"model.attention.{k}={_as_tuples(v)}" for k, v in contender.options.items()]
    config = load_config(f"configs/text.py:{method}", overrides)
    graphdef, _, _ = abstract_model(config, task, case.length)
    init = functools.partial(init_state, config=config, task=task, length=case.length)
    shape = (case.batch, case.length)
    parts = number_of_parts(case.batch, case.length * config.model.dim)
    in_parts = functools.partial(mean_over_parts, parts=parts, buckets=Buckets((case.length,)))
    step = functools.partial(
        train_step,
        graphdef=graphdef,
        optimizer=make_optimizer(config.train),
        mean_over_parts=in_parts,
    )

    def make_arguments():
        ids = jax.random.randint(jax.random.key(1), shape, 1, task.vocab_size)
        batch = Batch(ids, jnp.ones(shape, bool), jnp.arange(shape[0]) % _TEXT_CLASSES)
        return jax.jit(init)(jax.random.key(0)), jnp.int32(1), batch, jax.random.key(2)

    return step, make_arguments, parts
