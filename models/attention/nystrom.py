"""Nyströmformer: softmax attention through landmarks (Xiong et al. 2021, arXiv 2102.03902).

    softmax(Q K^T / sqrt(d)) V  ~  F (Z (B V)) + convolution(V)             Eq. 17, Fig. 4
    F = softmax(Q K~^T / sqrt(d))   A = softmax(Q~ K~^T / sqrt(d))   B = softmax(Q~ K^T / sqrt(d))

The m landmarks Q~, K~ are means of Q, K over segments of consecutive positions (Eq. 16); Z is the
result of `pinv_iterations` steps (six) towards the pseudo-inverse of A (Eq. 14, Lemma 1). Bracketed
as above, B V and F (...) are attention from and to the landmarks (`models.attention.low_rank`), so
that neither F nor B is ever stored: time O(n m d + m^3), memory O(n d + m^2).

Differences from the paper and its code (mlpen/Nystromformer, LRA/code):
- As in the code, Eq. 14 is read with one factor inside the other (`iterative_pinv`), without which
  the inverse is no fixed point, and the sums of Eq. 16 are divided by their number of terms.
- Any length: if n is not a multiple of m, the first n mod m segments are one position longer.
- The iteration's starting point is computed per matrix, as in the paper; the code divides by one
  maximum over batch and heads, so that an output depends on the other examples in its batch.
- Padding: a landmark is the mean of its segment's real tokens; the code averages zeros at padding
  too. A segment without real tokens has no effect: it has weight 0 in F and B, and its row and
  column of A are those of the identity, which leaves the inverse of the rest unchanged. Masked keys
  have weight 0, and masked values count as 0.
- For m = n the code switches to plain softmax; here the same formula applies, and approaches
  softmax attention with more iterations.
- The iteration and A are computed in full float32 (or float64) on every device, in the kernels of
  `models.attention.pinv_kernel` by products of bfloat16 parts; F, B and their products in at least
  float32, to which blocks of q, k and v are cast. Where GPU kernels take 16-bit sequences instead
  (`models.attention.low_rank`), weights, landmarks, B V and Z (B V) are rounded too: with random
  inputs the error is less than twice that of rounding q, k, v and the result (tested).
  F (Z (B V)) is rounded to the dtype of q before the convolution is added.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from models import kernel_choice
from models.attention.contract import (
    Attention,
    Heads,
    Mask,
    check_inputs,
    check_length,
    masked_softmax,
)
from models.attention.convolution import depthwise_convolution
from models.attention.low_rank import low_rank_attention
from models.attention.packing import Packing, pack, spread
from models.attention.padding import padded_to, zeroed
from models.attention.segments import check_segments, segment_any, segment_means
from models.checks import check_not_negative, check_positive
from models.dense import uniform_within
from models.dtypes import accumulation_dtype
from models.largest import largest
from models.machine import this_machine

PINV_ITERATIONS = 6  # paper, below Eq. 14: "about 6 iterations"
_EXACT = jax.lax.Precision.HIGHEST  # by default GPUs and TPUs round operands to 10 or 7 bits


class Landmarks(NamedTuple):
    """Means over segments, and whether each segment has a real token."""

    q: Float[Array, "batch num_landmarks heads head_dim"]
    k: Float[Array, "batch num_landmarks heads head_dim"]
    used: Bool[Array, "batch num_landmarks"]


class Factors(NamedTuple):
    """Factors whose product f @ z @ b approximates the softmax matrix."""

    f: Float[Array, "batch heads length num_landmarks"]
    z: Float[Array, "batch heads num_landmarks num_landmarks"]
    b: Float[Array, "batch heads num_landmarks length"]


def iterative_pinv(
    a: Float[Array, "*batch m m"], iterations: int = PINV_ITERATIONS
) -> Float[Array, "*batch m m"]:
    """Approximate the Moore-Penrose inverse of each matrix by matrix products only.

    Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4                          (paper, Eq. 14)
    from A^T / (|A|_1 |A|_inf), the largest column sum times the largest row sum of |A|.
    The order of convergence is three; six steps are often far from converged, so their number is
    part of the method. Of a matrix of zeros, which no softmax gives, it is NaN. Computed in at
    least float32. Time O(iterations m^3); Z is kept after each step for the backward pass. On one
    GPU, `models.attention.pinv_kernel` computes it and keeps two more matrices per step. Among
    equally large sums the first gets the gradient (`models.largest`).
    """
    dtype, a = a.dtype, a.astype(accumulation_dtype(a.dtype))
    identity = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    magnitude = jnp.abs(a)
    largest_column = largest(jnp.sum(magnitude, axis=-2), axis=-1)
    largest_row = largest(jnp.sum(magnitude, axis=-1), axis=-1)
    z = jnp.swapaxes(a, -1, -2) / (largest_column * largest_row)[..., None, None]
    if iterations and kernel_choice.preferred_for_matrices(a.shape[-1], a.dtype, this_machine()):
        # Pallas is slow to import.
        from models.attention.pinv_kernel import iterate

        return iterate(a, z, iterations).astype(dtype)

    def step(z, _):
        az = _exact_product(a, z)
        inner = 7 * identity - az
        inner = 15 * identity - _exact_product(az, inner)
        inner = 13 * identity - _exact_product(az, inner)
        return _exact_product(z, inner) / 4, None

    # The backward pass recomputes the inner products of a step: stored, they would take most of the
    # memory that a short sequence needs.
    z, _ = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), z, length=iterations)
    return z.astype(dtype)


def nystrom_factors(
    q: Heads, k: Heads, mask: Mask, *, num_landmarks: int, pinv_iterations: int = PINV_ITERATIONS
) -> Factors:
    """Compute the three factors of the softmax matrix, in at least float32.

    This is for analysis and as the reference: `nystrom_attention` stores neither f nor b.

    Raises:
        ValueError: `num_landmarks` not in 1 to length.
    """
    q, k = zeroed(q, mask), zeroed(k, mask)
    landmarks = _landmarks(q, k, mask, num_landmarks)
    q, k = q.astype(landmarks.q.dtype), k.astype(landmarks.k.dtype)
    scale = 1 / math.sqrt(q.shape[-1])
    used = landmarks.used[:, None, None, :]
    used_rows = jnp.swapaxes(used, -1, -2)
    f = masked_softmax(jnp.einsum("blhd,bmhd->bhlm", q * scale, landmarks.k), used)
    b_scores = jnp.einsum("bmhd,blhd->bhml", landmarks.q * scale, k)
    b = masked_softmax(b_scores, used_rows & mask[:, None, None, :])
    return Factors(f, _landmark_inverse(landmarks, pinv_iterations), b)


def nystrom_attention(
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Mask,
    *,
    num_landmarks: int,
    pinv_iterations: int = PINV_ITERATIONS,
    conv_kernel: Float[Array, "heads width"] | None = None,
) -> Heads:
    """Attend through `num_landmarks` landmarks, and add the convolution of v if given a kernel.

    Args:
        q, k, v, mask: See `models.attention.contract`; at least `num_landmarks` positions.
        num_landmarks: Number of segments that the sequence is cut into.
        pinv_iterations: Number of steps of `iterative_pinv`.
        conv_kernel: Kernel of each head, correlated with its masked values along the length (see
            `models.attention.convolution`); None: no convolution.

    Raises:
        ValueError: `num_landmarks` not in 1 to length, `pinv_iterations` below 0, a kernel of
            another shape, or inputs that violate the contract.
    """
    check_inputs(q, k, v, mask)
    check_not_negative(pinv_iterations=pinv_iterations)
    heads = q.shape[2]
    shape = getattr(conv_kernel, "shape", ())  # modules take a width of this name
    if conv_kernel is not None and (shape[:-1] != (heads,) or not conv_kernel.size):
        found = shape or repr(conv_kernel)
        raise ValueError(f"conv_kernel must be an array [{heads} heads, width], not {found}")
    landmarks = _landmarks(q, k, mask, num_landmarks)
    out = _attend_through(landmarks, q, k, v, mask, pinv_iterations)
    if conv_kernel is not None:
        out += depthwise_convolution(zeroed(v, mask), conv_kernel).astype(out.dtype)
    return out


def _attend_through(landmarks, q, k, v, mask, pinv_iterations):
    """F (Z (B V)); the positions of q, k and v may be in any order."""
    bv = low_rank_attention(landmarks.q, k, v, mask)
    z = _landmark_inverse(landmarks, pinv_iterations)
    zbv = jnp.einsum("bhmj,bjhd->bmhd", z, bv, precision=_EXACT)
    return low_rank_attention(q, landmarks.k, zbv, landmarks.used, query_mask=mask)


def _landmarks(q, k, mask, num_landmarks):
    """The landmarks of q and k, in at least float32."""
    check_segments(num_landmarks, q.shape[1], "num_landmarks")
    wide = (x.astype(accumulation_dtype(x.dtype)) for x in (q, k))
    means = (segment_means(x, mask, num_landmarks) for x in wide)
    return Landmarks(*means, segment_any(mask, num_landmarks))


def _landmark_inverse(landmarks, pinv_iterations):
    """Z, for an A whose rows and columns of unused landmarks are those of the identity."""
    q, k, used = landmarks
    columns = used[:, None, None, :]
    scores = jnp.einsum("bmhd,bjhd->bhmj", q / math.sqrt(q.shape[-1]), k, precision=_EXACT)
    identity = jnp.eye(q.shape[1], dtype=q.dtype)[None, None]
    both_used = jnp.swapaxes(columns, -1, -2) & columns
    a = jnp.where(both_used, masked_softmax(scores, columns), identity)
    # Without the barrier XLA's GPU backend spends half of a training step's compile time here.
    return iterative_pinv(jax.lax.optimization_barrier(a), pinv_iterations)


class NystromAttention(Attention):
    """`nystrom_attention` with a trained convolution kernel; deterministic, ignores `key`.

    Segments divide the module's length, not the input's: a shorter sequence has a landmark for each
    segment that it reaches (for all segments, if their number does not divide that length).
    """

    why_not_causal = (
        "a landmark is the mean of a whole segment, through which later positions would reach "
        "earlier ones"
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
        num_landmarks: int = 64,
        pinv_iterations: int = PINV_ITERATIONS,
        conv_kernel: int = 35,
    ):
        """Check the options and draw the kernel [heads, conv_kernel] in float32.

        Args:
            length, heads, head_dim, layer, shared, rngs: See `models.attention.make`.
            num_landmarks: Number m of landmarks, 1 to length (64 in mlpen/Nystromformer, LRA/code).
            pinv_iterations: Steps towards the pseudo-inverse (`PINV_ITERATIONS`).
            conv_kernel: Width of the convolution kernel (35 in mlpen/Nystromformer, LRA/code); 0:
                no convolution.

        Raises:
            ValueError: A size out of range, or more landmarks than positions.
        """
        check_segments(num_landmarks, length, "num_landmarks")
        check_positive(pinv_iterations=pinv_iterations)
        check_not_negative(conv_kernel=conv_kernel)
        self.length, self.num_landmarks = length, num_landmarks
        self.pinv_iterations = pinv_iterations
        self.kernel = _initial_kernel(rngs, heads, conv_kernel) if conv_kernel else None

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend through the landmarks; `key` is ignored.

        Raises:
            ValueError: Inputs that violate the contract or exceed the module's length.
        """
        heads = None if self.kernel is None else len(self.kernel)
        check_inputs(q, k, v, mask, heads=heads)
        length = q.shape[1]
        check_length(length, self.length)
        num_landmarks, padded = self.segments(length)
        q, k, v, mask = (padded_to(x, padded) for x in (q, k, v, mask))
        out = nystrom_attention(
            q,
            k,
            v,
            mask,
            num_landmarks=num_landmarks,
            pinv_iterations=self.pinv_iterations,
            conv_kernel=None if self.kernel is None else self.kernel[...],
        )
        return out[:, :length]

    def attend_packed(
        self, q: Heads, k: Heads, v: Heads, packing: Packing, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend between packed sequences; landmarks and convolution alone are not packed."""
        length = packing.mask.shape[1]
        num_landmarks, padded = self.segments(length)
        unpacked = (padded_to(spread(x, packing), padded) for x in (q, k))
        landmarks = _landmarks(*unpacked, padded_to(packing.mask, padded), num_landmarks)
        out = _attend_through(landmarks, q, k, v, packing.packed_mask, self.pinv_iterations)
        if self.kernel is None:
            return out
        convolved = depthwise_convolution(spread(v, packing), self.kernel[...])
        return out + pack(convolved, packing).astype(out.dtype)

    def segments(self, length: int) -> tuple[int, int]:
        """Return a sequence's number of landmarks and the total length of their segments.

        Segments divide the module's length; those that would hold only padding are left out if the
        number of landmarks divides that length.
        """
        if length == self.length:
            return self.num_landmarks, length
        if self.length % self.num_landmarks:
            return self.num_landmarks, self.length
        size = self.length // self.num_landmarks
        used = -(-length // size)
        return used, used * size


def _initial_kernel(rngs, heads, width):
    """Initialised like PyTorch's Conv with one channel, whose fan in is the width."""
    return nnx.Param(uniform_within(width)(rngs.params(), (heads, width)))


def _exact_product(a, b):
    return jnp.matmul(a, b, precision=_EXACT)
