"""Pathfinder: are the two discs on one contour? Accuracies in percent.

Paper:     Linsley et al., 2018; LRA, arXiv 2011.04006
Data:      python -m lra.data.prepare pathfinder
Train:     python train.py --config=configs/pathfinder.py:nystrom --workdir=runs/pathfinder-nystrom
Published: standard 74.16, nystrom 70.94, linformer 67.60, performer 69.87, reformer 69.36
           (Nyströmformer, arXiv 2102.03902, Table 3)
Here:      standard 72.69, nystrom 69.14, linformer 67.84, performer 67.92, reformer 69.73
           one seed each
Chance:    about 50
Time:      8 to 17 min a run, on an H200, beside others; alone, without compilation, 2.2 to 3.4

32 x 32 pixels, hard (contours of 14 dashes), 2 classes, 160,000 / 20,000 / 20,000 images.
"""

from ml_collections import config_dict

from configs import default


def get_config(attention: str = "standard") -> config_dict.ConfigDict:
    """The protocol of Table 3 for Pathfinder."""
    config = default.get_config(attention)
    config.task = "pathfinder"
    # From NYS lra_config, all but eval_batch_size, which changes speed and rounding only.
    config.train.steps = 62_400  # 99.8 epochs
    config.train.warmup_steps = 312
    config.train.batch_size = 256
    config.train.eval_batch_size = 256
    config.train.eval_every = 312
    config.data.zero_is_padding = True  # both published codes mask black pixels
    return config
