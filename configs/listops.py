"""ListOps (Nangia and Bowman, 2018; LRA, arXiv 2011.04006): the value of a nested expression.

    python -m lra.data.prepare listops
    python train.py --config=configs/listops.py:nystrom --workdir=runs/listops-nystrom

Up to 2,000 symbols, 10 classes, 96,000 / 2,000 / 2,000 expressions.
Nyströmformer, Table 3: standard 37.10, reformer 19.05, linformer 37.25, performer 18.80,
nystrom 37.15. The majority class is right in 17.0 %, the best guess from the root operator alone
in 36.4 % of cases, so numbers near 37 say that this shortcut was learned.
Unlike the code behind the table the data keep their brackets: without them the task has no
unique answer. The README says what a run costs.
"""

from ml_collections import config_dict

from configs import default


def get_config(attention: str = "standard") -> config_dict.ConfigDict:
    """The protocol of Table 3 for ListOps."""
    config = default.get_config(attention)
    config.task = "listops"
    config.train.steps = 5_000  # NYS lra_config; 1.67 epochs
    config.train.warmup_steps = 1_000
    config.train.batch_size = 32
    config.train.eval_every = 50
    return config
