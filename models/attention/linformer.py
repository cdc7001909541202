"""Linformer: keys and values projected along the length (arXiv 2006.04768, Equation 7).

    out = softmax(q (E k)^T / sqrt(D)) (F v)        E, F [proj_dim, length], k and v 0 at padding

Complexity per head of width D, with length n and proj_dim m: time O(n m D), memory O(n D + m D)
and, except in GPU kernels, one block of scores (`models.attention.low_rank`); m n parameters per
distinct E or F.

`share` takes any of

    kv       E = F
    heads    one matrix for all heads of a layer
    layers   one matrix for all layers: layer 0's, which the others refer to

The paper's headwise sharing (Section 4) is ("heads",), its key-value sharing ("heads", "kv"), its
layerwise sharing all three. The default is that of the code behind Table 3 of arXiv 2102.03902
(mlpen/Nystromformer): each head has one matrix, for keys and values and for all layers. proj_dim
may differ between layers and between heads that do not share a matrix. `projection` replaces the
matrices by pooling over proj_dim windows, or by a convolution whose kernel and stride are length /
proj_dim, rounded up: the paper's "general projections".

Differences. A projected key mixes positions, so padding cannot be given weight 0. It adds nothing
to E k and F v, but a projected key of padding alone still takes part in the softmax (as in the code
behind Table 3; LRA's own JAX code has no mask at all). With pooling and convolution, windows
without a real token are excluded from the softmax; means and maxima are over real tokens.

The output does not depend on the amount of padding: column i of E always multiplies position i, and
windows divide the module's length, not the input's.
"""

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from models.attention.contract import Attention, Heads, Mask, check_inputs, check_length
from models.attention.length_projection import project
from models.attention.low_rank import low_rank_attention
from models.attention.packing import Packing, spread
from models.attention.padding import padded, padded_to, zeroed
from models.attention.segments import check_segments, segment_any, segment_max, segment_means
from models.checks import check_choice, check_choices
from models.dense import kernel_einsum, uniform_within
from models.dtypes import common_dtype

SHARES = ("kv", "heads", "layers")
WINDOW_POOLINGS = {"mean_pool": segment_means, "max_pool": segment_max}
PROJECTIONS = ("linear", "conv", *WINDOW_POOLINGS)
Queries = Float[Array, "batch queries heads head_dim"]
LINEAR_STDDEV = 0.02  # as in the code behind Table 3


def linformer_attention(
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Mask,
    e: Float[Array, "#heads projected columns"],
    f: Float[Array, "#heads projected columns"] | None = None,
) -> Heads:
    """Attend by Equation 7, with `e` projecting the keys and `f` the values.

    Each has one matrix per head, or one for all heads. Without `f`, `e` projects both and is read
    once.

    Raises:
        ValueError: Fewer columns than positions (of more, the first are used), `e` and `f` of
            unequal shapes or for another number of heads, or inputs that violate the contract.
    """
    check_inputs(q, k, v, mask)
    heads = q.shape[2]
    for name, matrices in (("e", e), ("f", e if f is None else f)):
        if matrices.ndim != 3 or matrices.shape[0] not in (1, heads):
            raise ValueError(
                f"{name} must be [1 or {heads} heads, projected, columns], not {matrices.shape}"
            )
    if f is not None and e.shape[1:] != f.shape[1:]:
        raise ValueError(
            f"e {e.shape} and f {f.shape} project to unequal sizes or from unequal lengths"
        )
    return _linear(q, k, v, mask, e, f)


def _linear(q, k, v, mask, e, f):
    """`linformer_attention`; `mask` applies to keys and values only."""
    if f is None:
        dtype = common_dtype(k.dtype, v.dtype)
        both = jnp.concatenate([k.astype(dtype), v.astype(dtype)], axis=-1)
        projected = project(both, mask, e)
        return low_rank_attention(q, *jnp.split(projected, 2, axis=-1))
    return low_rank_attention(q, project(k, mask, e), project(v, mask, f))


def window_pool(
    x: Heads, mask: Mask, pooling: str, *, num_windows: int, length: int
) -> tuple[Float[Array, "batch num_windows heads head_dim"], Bool[Array, "batch num_windows"]]:
    """Return the mean or maximum of each window's real tokens, and which windows have any.

    Args:
        x: Keys or values.
        mask: Which positions of `x` are real.
        pooling: Key of `WINDOW_POOLINGS`.
        num_windows: Number of windows; `length` positions are split as by `numpy.array_split`.
        length: Length to which `x` is padded, at least its own.
    """
    x, mask = padded_to(x, length), padded_to(mask, length)
    return WINDOW_POOLINGS[pooling](x, mask, num_windows), segment_any(mask, num_windows)


def convolution(
    x: Heads, mask: Mask, kernel: Float[Array, "#heads window head_dim head_dim"]
) -> tuple[Float[Array, "batch windows heads head_dim"], Bool[Array, "batch windows"]]:
    """Convolve along the length with stride equal to the window, without bias.

    Channels (input: third axis of `kernel`, output: fourth) are mixed within a head. Masked
    positions count as 0, and the last window is completed with padding.

    Returns:
        The convolved sequence, and which windows hold a real token.
    """
    window = kernel.shape[1]
    x, mask = padded(x, window), padded(mask, window)
    x = zeroed(x, mask)
    x = x.reshape(x.shape[0], -1, window, *x.shape[2:])
    if kernel.shape[0] == 1:
        out = kernel_einsum("wio,bmwhi->bmho", kernel[0], x)
    else:
        out = kernel_einsum("hwio,bmwhi->bmho", kernel, x)
    return out.astype(x.dtype), jnp.any(mask.reshape(mask.shape[0], -1, window), axis=2)


class LinformerAttention(Attention):
    """Linformer with learned projections, pooling or convolution along the length.

    Options:
        proj_dim: Number of rows of E and F: an integer; a tuple with one entry per layer; or such a
            tuple whose entries are tuples with one integer per head.
        share: What shares a projection, any of 'kv', 'heads', 'layers'. Ignored for pooling, which
            has no parameters, so its sizes may differ everywhere.
        projection: 'linear', 'mean_pool', 'max_pool' or 'conv'.

    The parameters `e` and `f` are matrices [proj_dim, length], of N(0, 0.02^2), or convolution
    kernels. Each is a list with one array [heads or 1, ...] per group of heads. If all sizes are
    equal, all heads form one group; otherwise each head is a group of its own. Shared arrays are
    the same object, as which `nnx.split`, `nnx.clone` and `nnx.grad` treat them; for `jax.tree.map`
    and for `jax.grad` of a whole module each reference is an array of its own.
    """

    why_not_causal = "its projections mix all positions of the sequence into every key and value"

    def __init__(
        self,
        *,
        length: int,
        heads: int,
        head_dim: int,
        layer: int = 0,
        shared: Attention | None = None,
        rngs: nnx.Rngs,
        proj_dim: int | Sequence = 256,
        share: Collection[str] = ("kv", "layers"),
        projection: str = "linear",
    ):
        """See `models.attention.make`; options above.

        Raises:
            ValueError: A size below 1 or above `length`, too few sizes for the layers or not one
                per head, unequal sizes under sharing, an unknown name, or an incompatible `shared`.
        """
        check_choice("projection", projection, PROJECTIONS)
        check_choices("share", share, SHARES)
        share = () if projection in WINDOW_POOLINGS else tuple(sorted(share))
        self.length, self.projection, self.share = length, projection, share
        # Pooled and linear projections fit any.
        self.head_dim = head_dim if projection == "conv" else None
        self.sizes = head_sizes(proj_dim, layer=layer, heads=heads, length=length, share=share)
        if "layers" in share and layer > 0:
            self._refer_to(shared)
            return
        self.e = self._parameters(head_dim, share, rngs)
        self.f = self.e if "kv" in share else self._parameters(head_dim, share, rngs)

    def _refer_to(self, shared: Attention | None) -> None:
        if shared is None:
            raise ValueError("share has 'layers': layers after the first need layer 0's attention")
        for name in ("length", "projection", "share", "sizes", "head_dim"):
            if getattr(shared, name) != getattr(self, name):
                raise ValueError(
                    f"{name} {getattr(self, name)} differs from the {getattr(shared, name)} of the"
                    " layer whose projection is shared"
                )
        self.e, self.f = shared.e, shared.f

    def _parameters(self, head_dim: int, share: Collection[str], rngs: nnx.Rngs) -> nnx.List:
        arrays = []
        for start, stop in self._groups():
            copies = 1 if "heads" in share else stop - start
            size = self.sizes[start]
            if self.projection == "linear":
                draw = jax.random.normal(rngs.params(), (copies, size, self.length), jnp.float32)
                arrays.append(nnx.Param(LINEAR_STDDEV * draw))
            elif self.projection == "conv":
                window = -(-self.length // size)
                if -(-self.length // window) != size:
                    raise ValueError(
                        f"projection 'conv' cuts {self.length} positions into "
                        f"{-(-self.length // window)} windows of {window}, not proj_dim = {size}; "
                        "choose a proj_dim that divides the length"
                    )
                initialise = uniform_within(window * head_dim)  # PyTorch's Conv
                shape = (copies, window, head_dim, head_dim)
                arrays.append(nnx.Param(initialise(rngs.params(), shape)))
        return nnx.List(arrays)

    def _groups(self) -> list[tuple[int, int]]:
        """Ranges of heads computed together: all heads, or one by one if their sizes differ."""
        heads = len(self.sizes)
        if len(set(self.sizes)) == 1:
            return [(0, heads)]
        return [(head, head + 1) for head in range(heads)]

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend to projected keys and values; `key` is ignored.

        Raises:
            ValueError: Inputs that violate the contract, exceed the module's length, have another
                number of heads or, for the convolution, another size of a head.
        """
        check_inputs(q, k, v, mask, heads=len(self.sizes), head_dim=self.head_dim)
        return self._attend(q, k, v, mask)

    def attend_packed(
        self, q: Heads, k: Heads, v: Heads, packing: Packing, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend between packed sequences; keys and values are unpacked for the projections.

        Raises:
            ValueError: Unpacked sequences longer than the module's length.
        """
        return self._attend(q, spread(k, packing), spread(v, packing), packing.mask)

    def _attend(self, q: Queries, k: Heads, v: Heads, mask: Mask) -> Queries:
        """Attend; `mask` applies to keys and values, and queries may be at any positions."""
        check_length(k.shape[1], self.length)
        outs = [
            self._attend_group(group, *(x[:, :, start:stop] for x in (q, k, v)), mask)
            for group, (start, stop) in enumerate(self._groups())
        ]
        return outs[0] if len(outs) == 1 else jnp.concatenate(outs, axis=2)

    def _attend_group(self, group: int, q: Queries, k: Heads, v: Heads, mask: Mask) -> Queries:
        if self.projection in WINDOW_POOLINGS:
            windows = {"num_windows": self.sizes[group], "length": self.length}
            keys, nonempty = window_pool(k, mask, self.projection, **windows)
            values, _ = window_pool(v, mask, self.projection, **windows)
            return low_rank_attention(q, keys, values, nonempty)
        e, f = self.e[group][...], self.f[group][...]
        if self.projection == "linear":
            shared = self.f[group] is self.e[group]
            return _linear(q, k, v, mask, e, None if shared else f)
        keys, nonempty = convolution(k, mask, e)
        values, _ = convolution(v, mask, f)
        return low_rank_attention(q, keys, values, nonempty)


def head_sizes(
    proj_dim: int | Sequence, *, layer: int, heads: int, length: int, share: Collection[str]
) -> tuple[int, ...]:
    """Return the projected size of each head of `layer`, after checking those of all layers.

    Raises:
        ValueError: See `LinformerAttention`.
    """
    layers = tuple(proj_dim) if isinstance(proj_dim, Sequence) else (proj_dim,) * (layer + 1)
    if len(layers) <= layer:
        raise ValueError(f"proj_dim has no entry for layer {layer}: {layers}, one per layer")
    sizes = [tuple(entry) if isinstance(entry, Sequence) else (entry,) * heads for entry in layers]
    for entry in sizes:
        if len(entry) != heads:
            raise ValueError(f"proj_dim has {len(entry)} sizes for a layer of {heads} heads")
        for size in entry:
            check_segments(size, length, name="proj_dim")
        if "heads" in share and len(set(entry)) > 1:
            raise ValueError(f"share has 'heads', but proj_dim differs between heads: {entry}")
    if "layers" in share and len(set(sizes)) > 1:
        raise ValueError(f"share has 'layers', but proj_dim differs between layers: {layers}")
    return sizes[layer]
