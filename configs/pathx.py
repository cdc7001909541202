"""Path-X: Pathfinder at 128 x 128 = 16,384 positions. Accuracies in percent.

Paper:     LRA, arXiv 2011.04006
Data:      python -m lra.data.prepare pathx
Train:     python train.py --config=configs/pathx.py:nystrom --workdir=runs/pathx-nystrom
Published: no model better than chance (LRA); not in Table 3 of Nyströmformer
Here:      not run yet
Chance:    about 50
Time:      not run yet

The schedule is Pathfinder's, with an eighth of its batch and a quarter of its validations, since an
image has 16 times the pixels.
"""

from ml_collections import config_dict

from configs import default


def get_config(attention: str = "standard") -> config_dict.ConfigDict:
    """Pathfinder's protocol at 16,384 positions."""
    config = default.get_config(attention)
    config.task = "pathx"
    config.train.steps = 62_400
    config.train.warmup_steps = 312
    config.train.batch_size = 32
    config.train.eval_batch_size = 32
    config.train.eval_every = 1_248
    config.data.zero_is_padding = True
    return config
