"""AdamW with the one-cycle schedule behind Table 3 of the Nyströmformer paper.

The code of the paper uses PyTorch's `OneCycleLR` with linear annealing. By default that also cycles
Adam's beta1 against the learning rate; both are functions of the step alone.
"""

import optax
from ml_collections import config_dict

_DIV_FACTOR = 25.0  # OneCycleLR: the schedule starts at peak / 25 ...
_FINAL_DIV_FACTOR = 1e4  # ... and ends at that / 10,000
_MAX_BETA1, _MIN_BETA1 = 0.95, 0.85  # OneCycleLR: max_momentum, base_momentum
_BETA2, _EPSILON = 0.999, 1e-6  # mlpen/Nystromformer LRA: AdamW(betas=(0.9, 0.999), eps=1e-6)


def one_cycle(start: float, peak: float, end: float, *, warmup: int, steps: int) -> optax.Schedule:
    """Linear schedule from `start` at step 0 to `peak` at `warmup` - 1 to `end` at `steps` - 1.

    If `warmup` is not less than `steps`, it only rises within them.
    """
    rise = max(warmup - 1, 0)
    up = optax.linear_schedule(start, peak, max(rise, 1))
    down = optax.linear_schedule(peak, end, max(steps - 1 - rise, 1))
    return optax.join_schedules([up, down], [rise])


def learning_rate(train: config_dict.ConfigDict) -> optax.Schedule:
    """Learning rate as a function of the step."""
    peak = train.learning_rate
    start = peak / _DIV_FACTOR
    end = start / _FINAL_DIV_FACTOR
    return one_cycle(start, peak, end, warmup=train.warmup_steps, steps=train.steps)


def beta1(train: config_dict.ConfigDict) -> optax.Schedule:
    """Adam's beta1 as a function of the step: low where the learning rate is high."""
    return one_cycle(
        _MAX_BETA1, _MIN_BETA1, _MAX_BETA1, warmup=train.warmup_steps, steps=train.steps
    )


def make_optimizer(train: config_dict.ConfigDict) -> optax.GradientTransformation:
    """AdamW with the options of `config.train`.

    With `max_grad_norm` above 0, gradients are first clipped to this global norm. With 0, program
    and state are those of AdamW alone.
    """
    adamw = optax.inject_hyperparams(optax.adamw)(
        learning_rate=learning_rate(train),
        b1=beta1(train),
        b2=_BETA2,
        eps=_EPSILON,
        weight_decay=train.weight_decay,
    )
    if not train.max_grad_norm:
        return adamw
    return optax.chain(optax.clip_by_global_norm(train.max_grad_norm), adamw)
