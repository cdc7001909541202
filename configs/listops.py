"""ListOps: the value of a nested expression. Accuracies in percent.

Paper:     Nangia and Bowman, 2018; LRA, arXiv 2011.04006
Data:      python -m lra.data.prepare listops
Train:     python train.py --config=configs/listops.py:nystrom --workdir=runs/listops-nystrom
Published: standard 37.10, nystrom 37.15, linformer 37.25, performer 18.80, reformer 19.05
           (Nyströmformer, arXiv 2102.03902, Table 3)
Here:      standard 36.63, nystrom 31.34, linformer 37.50, performer 21.80, reformer 18.90
           means of 3, 7, 3, 3 and 3 seeds
Chance:    17.0, the majority class; 36.1, the best guess from the root operator alone:
           numbers near 37 are no better than this shortcut
Time:      60 to 177 min a run, on the one or two CPU cores that the rows name

Up to 2,000 symbols, 10 classes, 96,000 / 2,000 / 2,000 expressions. The data keep their
brackets: without them, as the table was probably made, the task has no unique answer.
"""

from ml_collections import config_dict

from configs import default


def get_config(attention: str = "standard") -> config_dict.ConfigDict:
    """The protocol of Table 3 for ListOps."""
    config = default.get_config(attention)
    config.task = "listops"
    # All from NYS lra_config.
    config.train.steps = 5_000  # 1.67 epochs
    config.train.warmup_steps = 1_000
    config.train.batch_size = 32
    config.train.eval_every = 50
    return config
