"""Path-X (LRA, arXiv 2011.04006): Pathfinder at 128 x 128 = 16,384 positions.

    python -m lra.data.prepare pathx
    python train.py --config=configs/pathx.py:nystrom --workdir=runs/pathx-nystrom

No model of the LRA paper is better than chance here, and Table 3 leaves the task out; the
schedule is Pathfinder's with a smaller batch.
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
