"""Performer: attention by positive orthogonal random features, FAVOR+ (arXiv 2009.14794).

    out = f(q) (f(k)^T v) / (f(q) . sum over keys of f(k))

    softmax   f(x) = R^(-1/2) [exp(p - c^2 |x|^2 / 2 - max p) + epsilon]      epsilon = 1e-4
    relu      f(x) = max(p, 0) + 1e-3
              p = c P x, c = D^(-1/4), P [R, D] orthogonal in blocks of D rows

with R features and head width D. With epsilon = 0, E[f(q) . f(k)] is proportional to
exp(q . k / sqrt(D)), so the softmax kernel approaches standard attention as R grows. Otherwise max
p grows with R, until all features are near epsilon and all weights equal.

Complexity per head, with length n: time O(n R D), memory O(n D + R D) with the softmax kernel,
whose features are computed block by block (`models.attention.favor`, for bfloat16 on one GPU
`models.attention.favor_kernels`); O(n R + R D) with relu.

Differences. The feature maps and their epsilons are those of performer-pytorch 1.1.4; nothing is
added to the denominator. Unlike the code behind Table 3 of arXiv 2102.03902 (mlpen/Nystromformer),
which uses that package, q and k are scaled once (D^(-1/4) each, not twice), and padding is in no
sum: its features are 0 rather than those of a zero key, which would dilute the denominator. LRA's
own JAX code has no projection but max(x, 0) + 1e-3 of the unscaled inputs (for ListOps two
features, drawn anew in every call), and counts padding too. The maximum subtracted from the keys'
exponents is over real positions, per sequence and head, and a constant to the gradient, as in
1.1.4. The performer-pytorch of the code behind Table 3 (which names no version; by its date
probably 0.15) takes one maximum over batch, heads and padding, so that an example's features depend
on its batch and more of them fall below epsilon; and it differentiates the maxima of queries and
keys, which changes gradients while many features are near epsilon. Directions are uniform on the
sphere, by Gram-Schmidt on Gaussian rows.

Epsilon and training. Where keys are long, the factor exp(-c^2 |k|^2 / 2), or one key far above the
others in max p, puts their features below epsilon. Then all weights are equal, the output is the
mean of the values, and hardly any gradient leads out of this state. Models ended up there on short
ListOps: in the first layer hardly any key feature was above 1e-4. Under the protocol, one of three
seeds falls back to the accuracy of that state (results/LISTOPS.md). With epsilon = 0 the maximum
cancels, the estimate of exp(q . k / sqrt(D)) is unbiased, and there is no such floor; a query gets
0 if all its products of features (nearly) underflow.

The output does not depend on the amount of padding.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from models import kernel_choice
from models.attention.blocks import swap_heads
from models.attention.contract import (
    Attention,
    Heads,
    Mask,
    Untrained,
    check_inputs,
    untrained_key,
)
from models.attention.favor import favor_attention
from models.checks import check_choice, check_fraction, check_not_negative, check_positive
from models.dtypes import accumulation_dtype, common_dtype
from models.machine import this_machine

KERNELS = ("softmax", "relu")
SOFTMAX_EPSILON = 1e-4
RELU_EPSILON = 1e-3


def orthogonal_features(
    key: PRNGKeyArray, num_features: int, head_dim: int
) -> Float[Array, "features head_dim"]:
    """Draw a random projection: blocks of `head_dim` orthogonal rows with the norms of Gaussians.

    The marginal distribution of each row is N(0, I); the last block may be incomplete.

    Raises:
        ValueError: Sizes that are not positive integers.
    """
    check_positive(num_features=num_features, head_dim=head_dim)
    key_directions, key_norms = jax.random.split(key)
    blocks = math.ceil(num_features / head_dim)
    gaussian = jax.random.normal(key_directions, (blocks, head_dim, head_dim), jnp.float32)
    rows = _orthonormal(gaussian).reshape(blocks * head_dim, head_dim)[:num_features]
    norms = jnp.linalg.norm(
        jax.random.normal(key_norms, (num_features, head_dim), jnp.float32), axis=1, keepdims=True
    )
    return rows * norms


def _orthonormal(rows: Float[Array, "blocks n dim"]) -> Float[Array, "blocks n dim"]:
    """Orthonormalise each block by Gram-Schmidt, twice against round-off; rows keep their signs.

    Used instead of `jnp.linalg.qr`, which on a CPU waits for helpers from the thread pool it runs
    on: two layers' concurrent calls occupy both of two threads and deadlock (jaxlib 0.10.2).
    """
    product = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)

    def add_row(i: Array, basis: Array) -> Array:
        row = rows[:, i]
        for _ in range(2):
            row -= product("bn,bnd->bd", product("bnd,bd->bn", basis, row), basis)
        return basis.at[:, i].set(row / jnp.linalg.norm(row, axis=-1, keepdims=True))

    return jax.lax.fori_loop(0, rows.shape[1], add_row, jnp.zeros_like(rows))


def query_features(
    q: Heads,
    projection: Float[Array, "features head_dim"],
    *,
    kernel: str = "softmax",
    epsilon: float = SOFTMAX_EPSILON,
) -> Float[Array, "batch heads length features"]:
    """Return f(q), in at least float32; the softmax kernel's maximum is per query.

    Raises:
        ValueError: An unknown kernel.
    """
    check_choice("kernel", kernel, KERNELS)
    q = swap_heads(q)
    projected = _project(q, projection)
    if kernel == "relu":
        return jax.nn.relu(projected) + RELU_EPSILON
    peak = jnp.max(projected, axis=-1, keepdims=True)
    added = epsilon * projection.shape[0] ** -0.5
    return jnp.exp(projected - _offset(q, projected, peak)) + added


def key_features(
    k: Heads,
    mask: Mask,
    projection: Float[Array, "features head_dim"],
    *,
    kernel: str = "softmax",
    epsilon: float = SOFTMAX_EPSILON,
) -> Float[Array, "batch heads length features"]:
    """Return f(k), in at least float32, and 0 at padding.

    The softmax kernel's maximum is over real positions and features, per sequence and head.

    Raises:
        ValueError: An unknown kernel.
    """
    check_choice("kernel", kernel, KERNELS)
    # Padding is masked per row, not per entry of the [length, features] arrays.
    real = mask[:, None, :, None]
    k = jnp.where(real, swap_heads(k), 0)
    projected = _project(k, projection)
    if kernel == "relu":
        return jax.nn.relu(projected) + jnp.where(real, RELU_EPSILON, 0).astype(projected.dtype)
    limits = jnp.finfo(projected.dtype)
    peaks = jnp.where(real, jnp.max(projected, axis=-1, keepdims=True), limits.min)
    offset = _offset(k, projected, jnp.max(peaks, axis=2, keepdims=True))
    exponent = projected - jnp.where(real, offset, limits.max)
    added = epsilon * projection.shape[0] ** -0.5
    return jnp.exp(exponent) + jnp.where(real, added, 0).astype(projected.dtype)


def performer_attention(
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Mask,
    projection: Float[Array, "features head_dim"],
    *,
    kernel: str = "softmax",
    epsilon: float = SOFTMAX_EPSILON,
) -> Heads:
    """Attend by random features; all heads share `projection`.

    Everything between the inputs and the output is in at least float32, except some products in
    GPU kernels. `epsilon` applies to the softmax kernel; that of `relu` is fixed.

    Raises:
        ValueError: An unknown kernel, an `epsilon` not in [0, 1), a projection that is not
            [features, head_dim], or inputs that violate the contract.
    """
    check_inputs(q, k, v, mask)
    check_choice("kernel", kernel, KERNELS)
    check_fraction(epsilon=epsilon)
    if projection.ndim != 2 or not len(projection) or projection.shape[1] != q.shape[3]:
        raise ValueError(f"projection must be [features, {q.shape[3]}], not {projection.shape}")
    if kernel == "relu":
        return _attend_by_relu(q, k, v, mask, projection)
    common = common_dtype(q.dtype, k.dtype, v.dtype)  # kernels take no mixed dtypes
    if kernel_choice.preferred_for_features(common, *projection.shape, this_machine()):
        # Pallas is slow to import.
        from models.attention.favor_kernels import favor_attention_by_kernels

        return favor_attention_by_kernels(q, k, v, mask, projection, epsilon)
    dtype = accumulation_dtype(q.dtype)
    q_scaled, k_scaled = (x.astype(dtype) * x.shape[-1] ** -0.25 for x in (q, k))
    arrays = (q_scaled, k_scaled, v.astype(dtype), mask, projection.astype(dtype))
    return favor_attention(*arrays, epsilon).astype(q.dtype)


def _attend_by_relu(
    q: Heads, k: Heads, v: Heads, mask: Mask, projection: Float[Array, "features head_dim"]
) -> Heads:
    queries = query_features(q, projection, kernel="relu")
    keys = key_features(k, mask, projection, kernel="relu")
    values = jnp.where(mask[:, None, :, None], swap_heads(v), 0).astype(keys.dtype)
    summary = jnp.einsum("bhld,bhlm->bhdm", values, keys)
    total = jnp.einsum("bhlm,bhm->bhl", queries, jnp.sum(keys, axis=2))
    out = jnp.einsum("bhlm,bhdm->bhld", queries, summary)
    out = out / jnp.where(total > 0, total, 1)[..., None]
    return swap_heads(out).astype(q.dtype)


def _project(
    x: Float[Array, "batch heads length head_dim"], projection: Float[Array, "features head_dim"]
) -> Float[Array, "batch heads length features"]:
    dtype = accumulation_dtype(x.dtype)
    scaled = projection.astype(dtype) * x.shape[-1] ** -0.25
    return jnp.einsum("bhld,md->bhlm", x.astype(dtype), scaled)


def _offset(
    x: Float[Array, "batch heads length head_dim"],
    projected: Float[Array, "batch heads length features"],
    peak: Float[Array, "batch heads #length 1"],
) -> Float[Array, "batch heads length 1"]:
    """Offset subtracted from `projected` in the exponent, including the factor R^(-1/2)."""
    squares = jnp.sum(jnp.square(x.astype(projected.dtype)), axis=-1, keepdims=True)
    half = squares / (2 * math.sqrt(x.shape[-1]))
    # The peak is not differentiated, as in performer-pytorch 1.1.4. With an epsilon this is a
    # choice, since features then depend on the peak.
    return half + jax.lax.stop_gradient(peak) + math.log(projected.shape[-1]) / 2


class PerformerAttention(Attention):
    """Performer with a fixed random projection per layer, shared by its heads.

    Options:
        num_features: Number R of features; the paper suggests about D log D, the benchmark's table
            has 256.
        kernel: 'softmax' or 'relu'.
        epsilon: Constant added to the features of the softmax kernel, relative to exp of the
            largest projection; see above. That of 'relu' is fixed.
        redraw_steps: Number of training steps between new projections, 0 = never. The module only
            checks it; the training loop calls `redraw`.

    `projection` [num_features, head_dim] is untrained and saved with the model; no parameters.
    """

    reads_positions = False
    why_not_causal = (
        "its sums over keys run over the whole sequence; a causal Performer needs running sums"
    )

    def __init__(
        self,
        *,
        length: int,
        heads: int,
        head_dim: int,
        layer: int = 0,
        shared: Attention | None = None,
        rngs: nnx.Rngs,
        num_features: int = 256,
        kernel: str = "softmax",
        epsilon: float = SOFTMAX_EPSILON,
        redraw_steps: int = 0,
    ):
        """See `models.attention.make`; options above.

        Raises:
            ValueError: A size below 1, an `epsilon` or `redraw_steps` out of range, an unknown
                kernel, or an `epsilon` for one that takes none.
        """
        check_positive(num_features=num_features)
        check_choice("kernel", kernel, KERNELS)
        check_not_negative(redraw_steps=redraw_steps)
        check_fraction(epsilon=epsilon)
        if kernel != "softmax" and epsilon != SOFTMAX_EPSILON:
            raise ValueError(f"epsilon is for kernel 'softmax'; that of '{kernel}' is fixed")
        self.kernel, self.epsilon = kernel, float(epsilon)
        features = orthogonal_features(untrained_key(rngs), num_features, head_dim)
        self.projection = Untrained(features)

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend by `projection`; `key` is ignored.

        Raises:
            ValueError: Inputs that violate the contract.
        """
        check_inputs(q, k, v, mask, head_dim=self.projection.shape[1])
        options = {"kernel": self.kernel, "epsilon": self.epsilon}
        return performer_attention(q, k, v, mask, self.projection[...], **options)

    def redraw(self, key: PRNGKeyArray) -> None:
        """Replace the projection by a new draw."""
        self.projection[...] = orthogonal_features(key, *self.projection.shape)
