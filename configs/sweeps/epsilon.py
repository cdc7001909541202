"""What the epsilon of Performer's features does to a training: short ListOps, no LRA numbers.

    python -m lra.sweep configs/sweeps/epsilon.py --results=runs/epsilon.jsonl

1e-4 is performer-pytorch's and the protocol's, 1e-6 that of the TensorFlow code of Performer's
authors, 0 leaves the features unbiased (`models.attention.performer`). Data and model are those of
`quick.py`, the learning rate is twice as large. About a minute a run on two CPU cores.
"""

from configs.sweeps import quick

DATA = quick.DATA

RUNS = [
    {
        "config": "configs/listops.py:performer",
        "seeds": (0, 1, 2),
        "train.steps": 600,
        "train.warmup_steps": 150,
        "train.learning_rate": 2e-3,
        "train.batch_size": 32,
        "train.eval_every": 50,
        "train.eval_batch_size": 250,
        "model.attention.num_features": 64,
        "model.attention.epsilon": epsilon,
    }
    for epsilon in (1e-4, 1e-6, 0.0)
]
