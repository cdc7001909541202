"""Linformer: keys and values projected along the length (arXiv 2006.04768, Equation 7).

    out = softmax(q (E k)^T / sqrt(D)) (F v)        E, F [proj_dim, length], k and v 0 at padding

Complexity in the length n, a head with proj_dim m and width D: time O(n m D), memory O(n D + m D)
and, but for the kernels of GPUs, one block of scores (`models.attention.low_rank`); m n parameters
for every distinct E or F.

`share` takes any of

    kv       E = F
    heads    one matrix for all heads of a layer
    layers   one matrix for all layers: layer 0's, which the others refer to

The paper's headwise sharing (Section 4) is ("heads",), its key-value sharing ("heads", "kv"), its
layerwise sharing all three. The default is that of the benchmark's PyTorch code: each head has one
matrix, for keys and values and for all layers. proj_dim may differ between layers and between heads
that do not share a matrix. `projection` replaces the matrices by pooling over proj_dim windows, or
by a convolution whose kernel and stride are length / proj_dim, rounded up: the paper's "general
projections".

Differences. A projected key mixes positions, so padding cannot be given weight 0. It adds nothing
to E k and F v, but a projected key that saw nothing but padding still takes part in the softmax (as
in the PyTorch code; the JAX code has no mask at all). With pooling and convolution, windows without
a real token take no part in it; means and maxima are over real tokens.

The output does not depend on the amount of padding: position i always meets column i of E,
and windows are laid over the module's length, not the input's.
"""

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from models.attention.blocks import padded, padded_to
from models.attention.contract import Heads, Mask, check_choice, check_choices, check_inputs
from models.attention.length_projection import project
from models.attention.low_rank import low_rank_attention
from models.attention.packing import Packing, spread
from models.attention.segments import check_segments, segment_any, segment_max, segment_means
from models.dense import kernel_einsum, uniform_within

SHARES = ("kv", "heads", "layers")
POOLINGS = {"mean_pool": segment_means, "max_pool": segment_max}
PROJECTIONS = ("linear", "conv", *POOLINGS)
Queries = Float[Array, "batch queries heads head_dim"]
LINEAR_STDDEV = 0.02  # the benchmark's PyTorch code


def linformer_attention(
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Mask,
    e: Float[Array, "#heads projected columns"],
    f: Float[Array, "#heads projected columns"] | None = None,
) -> Heads:
    """Equation 7 with `e` for the keys and `f` for the values, each per head or one for all.

    Without `f`, `e` is for both, and is read once.

    Raises:
        ValueError: fewer columns than positions (with more, the first are used), `e` and `f` of
            unequal shapes, or other inputs than the contract's.
    """
    check_inputs(q, k, v, mask)
    if f is not None and e.shape[1:] != f.shape[1:]:
        raise ValueError(
            f"e {e.shape} and f {f.shape} project to unequal sizes or from unequal lengths"
        )
    return _linear(q, k, v, mask, e, f)


def _linear(q, k, v, mask, e, f):
    """`linformer_attention`; `mask` is of keys and values alone."""
    if f is None:
        both = project(jnp.concatenate([k, v], axis=-1), mask, e)
        return low_rank_attention(q, *jnp.split(both, 2, axis=-1))
    return low_rank_attention(q, project(k, mask, e), project(v, mask, f))


def pool(
    x: Heads, mask: Mask, pooling: str, *, num_windows: int, length: int
) -> tuple[Float[Array, "batch num_windows heads head_dim"], Bool[Array, "batch num_windows"]]:
    """The mean or maximum of each window's real tokens, and which windows have any.

    Args:
        x, mask: keys or values, and which are real.
        pooling: a key of `POOLINGS`.
        num_windows: how many windows `length` positions are cut into, as `numpy.array_split` does.
        length: at least the length of `x`; what `x` lacks is padding.
    """
    x, mask = padded_to(x, length), padded_to(mask, length)
    return POOLINGS[pooling](x, mask, num_windows), segment_any(mask, num_windows)


def convolution(
    x: Heads, mask: Mask, kernel: Float[Array, "#heads window head_dim head_dim"]
) -> tuple[Float[Array, "batch windows heads head_dim"], Bool[Array, "batch windows"]]:
    """Convolution along the length whose stride is its window, without bias, 0 at padding.

    Channels (`kernel`'s third axis in, its fourth out) are mixed within a head. Also returns which
    windows hold a real token. The last window is completed with padding.
    """
    window = kernel.shape[1]
    x, mask = padded(x, window), padded(mask, window)
    x = jnp.where(mask[:, :, None, None], x, 0)
    x = x.reshape(x.shape[0], -1, window, *x.shape[2:])
    if kernel.shape[0] == 1:
        out = kernel_einsum("wio,bmwhi->bmho", kernel[0], x)
    else:
        out = kernel_einsum("hwio,bmwhi->bmho", kernel, x)
    return out.astype(x.dtype), jnp.any(mask.reshape(mask.shape[0], -1, window), axis=2)


class LinformerAttention(nnx.Module):
    """Linformer.

    Options:
        proj_dim: rows of E and F: an integer; a tuple with one entry per layer; or such a tuple
            whose entries are tuples with one integer per head.
        share: what shares a projection, any of 'kv', 'heads', 'layers'. Ignored for poolings:
            they have no parameters, so their sizes may differ everywhere.
        projection: 'linear', 'mean_pool', 'max_pool' or 'conv'.

    Parameters are in `e` and `f`: matrices [proj_dim, length], N(0, 0.02), or convolution kernels.
    Each is a list with one array [heads or 1, ...] per group of heads. All heads are one group if
    their sizes are equal; otherwise each is its own. What is shared is one and the same object.
    """

    shares_qk = False
    reads_positions = True
    why_not_causal = "its projections mix all positions of the sequence into every key and value"

    def __init__(
        self,
        *,
        length: int,
        heads: int,
        head_dim: int,
        layer: int = 0,
        shared: nnx.Module | None = None,
        rngs: nnx.Rngs,
        proj_dim: int | Sequence = 256,
        share: Collection[str] = ("kv", "layers"),
        projection: str = "linear",
    ):
        """See `models.attention.make`; options above.

        Raises:
            ValueError: a size below 1 or above `length`, too few sizes for the layers or not one
                per head, unequal sizes under sharing, an unknown name, or a `shared` that does
                not fit.
        """
        check_choice("projection", projection, PROJECTIONS)
        check_choices("share", share, SHARES)
        share = () if projection in POOLINGS else share
        self.length, self.projection = length, projection
        self.sizes = head_sizes(proj_dim, layer=layer, heads=heads, length=length, share=share)
        if "layers" in share and layer > 0:
            self._refer_to(shared)
            return
        self.e = self._parameters(heads, head_dim, share, rngs)
        self.f = self.e if "kv" in share else self._parameters(heads, head_dim, share, rngs)

    def _refer_to(self, shared: nnx.Module | None) -> None:
        if shared is None:
            raise ValueError("share has 'layers': layers after the first need layer 0's attention")
        for name in ("length", "projection", "sizes"):
            if getattr(shared, name) != getattr(self, name):
                raise ValueError(
                    f"{name} {getattr(self, name)} differs from the {getattr(shared, name)} of the"
                    " layer whose projection is shared"
                )
        self.e, self.f = shared.e, shared.f

    def _parameters(
        self, heads: int, head_dim: int, share: Collection[str], rngs: nnx.Rngs
    ) -> nnx.List:
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
        """Ranges of heads computed together: all of them, or one by one if sizes differ."""
        heads = len(self.sizes)
        if len(set(self.sizes)) == 1:
            return [(0, heads)]
        return [(head, head + 1) for head in range(heads)]

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Attention through the layer's projections; `key` is not needed.

        Raises:
            ValueError: other inputs than the contract's, longer than the module's length, or with
                another number of heads.
        """
        check_inputs(q, k, v, mask, heads=len(self.sizes))
        return self._attend(q, k, v, mask)

    def attend_packed(
        self, q: Heads, k: Heads, v: Heads, packing: Packing, *, key: jax.Array | None = None
    ) -> Heads:
        """The same for packed sequences: the projections need where keys and values stand.

        Raises:
            ValueError: whole sequences longer than the module's length.
        """
        return self._attend(q, spread(k, packing), spread(v, packing), packing.mask)

    def _attend(self, q: Queries, k: Heads, v: Heads, mask: Mask) -> Queries:
        """`mask` is of keys and values; of the queries any positions will do."""
        if k.shape[1] > self.length:
            raise ValueError(f"{k.shape[1]} positions, but the attention is made for {self.length}")
        outs = [
            self._attend_group(group, *(x[:, :, start:stop] for x in (q, k, v)), mask)
            for group, (start, stop) in enumerate(self._groups())
        ]
        return outs[0] if len(outs) == 1 else jnp.concatenate(outs, axis=2)

    def _attend_group(self, group: int, q: Queries, k: Heads, v: Heads, mask: Mask) -> Queries:
        if self.projection in POOLINGS:
            windows = {"num_windows": self.sizes[group], "length": self.length}
            keys, live = pool(k, mask, self.projection, **windows)
            values, _ = pool(v, mask, self.projection, **windows)
            return low_rank_attention(q, keys, values, live)
        e, f = self.e[group][...], self.f[group][...]
        if self.projection == "linear":
            shared = self.f[group] is self.e[group]
            return _linear(q, k, v, mask, e, None if shared else f)
        keys, live = convolution(k, mask, e)
        values, _ = convolution(v, mask, f)
        return low_rank_attention(q, keys, values, live)


def head_sizes(
    proj_dim: int | Sequence, *, layer: int, heads: int, length: int, share: Collection[str]
) -> tuple[int, ...]:
    """The projected size of each head of `layer`, after checking those of all layers.

    Raises:
        ValueError: see `LinformerAttention`.
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
