"""The registry of attentions; their contract is in `models.attention.contract`.

To add one: see CONTRIBUTING.md.
"""

import inspect
from typing import Any

from flax import nnx

from models.attention.contract import Attention
from models.attention.linear import LinearAttention
from models.attention.linformer import LinformerAttention
from models.attention.longformer import LongformerAttention
from models.attention.nystrom import NystromAttention
from models.attention.performer import PerformerAttention
from models.attention.reformer import ReformerAttention
from models.attention.standard import StandardAttention
from models.checks import check_choice, check_not_negative, check_positive

ATTENTIONS: dict[str, type[Attention]] = {
    "standard": StandardAttention,
    "nystrom": NystromAttention,
    "linformer": LinformerAttention,
    "performer": PerformerAttention,
    "reformer": ReformerAttention,
    "longformer": LongformerAttention,
    "linear": LinearAttention,
}

_NOT_OPTIONS = ("self", "length", "heads", "head_dim", "layer", "shared", "rngs")


def make(
    name: str,
    *,
    length: int,
    heads: int,
    head_dim: int,
    layer: int = 0,
    shared: Attention | None = None,
    rngs: nnx.Rngs,
    causal: bool = False,
    **options: Any,
) -> Attention:
    """Build one layer's attention.

    Args:
        name: Key of `ATTENTIONS`.
        length: Longest sequence that the module will see, in positions.
        heads: Number of heads.
        head_dim: Width of a head.
        layer: Index of the layer, for options given per layer.
        shared: Layer 0's attention, whose arrays later layers may share; None in layer 0.
        rngs: Streams `params` (trained arrays) and `attention` (untrained draws; without it they
            come from `params`); `nnx.Rngs(0)` has both.
        causal: Must be False: none of the attentions can be used causally.
        **options: Options of the attention (`num_landmarks`, `proj_dim`, ...), see its class.

    Raises:
        ValueError: An unknown name or option (the known ones are listed), a size that does not
            fit, `rngs` that is not an `nnx.Rngs`, or causal use.
    """
    check_choice("attention", name, ATTENTIONS)
    check_positive(length=length, heads=heads, head_dim=head_dim)
    check_not_negative(layer=layer)
    if not isinstance(rngs, nnx.Rngs):
        raise ValueError(f"rngs must be an nnx.Rngs, such as nnx.Rngs(0), not {rngs!r}")
    module = ATTENTIONS[name]
    if shared is not None and not isinstance(shared, module):
        raise ValueError(f"shared must be the {name} attention of layer 0, not {shared!r:.40}")
    if causal:
        raise ValueError(f"{name} attention cannot be causal: {module.why_not_causal}")
    for option in options:
        check_choice(f"option of {name} attention", option, options_of(name))
    return module(
        length=length,
        heads=heads,
        head_dim=head_dim,
        layer=layer,
        shared=shared,
        rngs=rngs,
        **options,
    )


def options_of(name: str) -> dict[str, Any]:
    """Return the options of attention `name` with their defaults."""
    parameters = inspect.signature(ATTENTIONS[name].__init__).parameters
    return {
        option: parameter.default
        for option, parameter in parameters.items()
        if option not in _NOT_OPTIONS
    }
