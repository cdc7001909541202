"""Text (IMDb reviews as bytes; Maas et al., 2011; LRA, arXiv 2011.04006): positive or negative.

    python -m lra.data.prepare text --source=aclImdb_v1.tar.gz
    python train.py --config=configs/text.py:nystrom --workdir=runs/text-nystrom

The first 4,096 bytes of a review, 2 classes, 25,000 / 25,000 reviews. LRA has no validation set
here: it selects on the test set, and so does the default. `--config.data.holdout=0.1` selects on
a tenth of the training set instead.
Nyströmformer, Table 3: standard 65.02, reformer 64.88, linformer 55.91, performer 63.81,
nystrom 65.52.
"""

from ml_collections import config_dict

from configs import default


def get_config(attention: str = "standard") -> config_dict.ConfigDict:
    """The protocol of Table 3 for Text."""
    config = default.get_config(attention)
    config.task = "text"
    config.train.steps = 20_000  # NYS lra_config; 25.6 epochs
    config.train.warmup_steps = 8_000
    config.train.batch_size = 32
    config.train.eval_every = 500
    return config
