"""Image, Text and easy Pathfinder learned in minutes on a CPU core; these are not LRA numbers.

Paper:     none; the tasks of configs/image.py, text.py and pathfinder.py (contours of 6 dashes)
Data:      python -m lra.data.prepare text --source=download --data_dir=data/short, image likewise;
           Pathfinder is generated
Train:     python -m lra.sweep configs/sweeps/short.py --results=runs/short.jsonl \\
               --data_dir=data/short
Published: nothing
Here:      27.95 (Image), 63.58 (Text) and 79.48 (Pathfinder) on the test sets (results/short.jsonl,
           discussed in results/SHORT_TRAININGS.md)
Chance:    10 (Image), 50
Time:      5 to 11 minutes per run on one CPU core

The runs show that data, labels and training loop work together. They use larger learning rates than
the benchmark and, where that learns sooner, another pooling or a smaller model. The sweep has its
own data folder since its Pathfinder images are the easy ones.
"""

DATA = {"pathfinder": {"difficulty": "easy"}}

RUNS = [
    {
        "config": "configs/image.py:nystrom",
        "train.steps": 600,
        "train.warmup_steps": 60,
        "train.learning_rate": 1e-3,
        "train.batch_size": 32,
        "train.eval_every": 200,
    },
    {
        "config": "configs/text.py:nystrom",
        "data.holdout": 0.1,
        "model.pooling": "mean",
        "model.positions": "none",
        "train.steps": 900,
        "train.warmup_steps": 90,
        "train.learning_rate": 1e-3,
        "train.batch_size": 16,
        "train.eval_every": 300,
    },
    {
        "config": "configs/pathfinder.py:linear",
        "model.num_layers": 1,
        "model.dim": 32,
        "model.head_dim": 16,
        "model.mlp_dim": 64,
        "model.dropout": 0.0,
        "model.pooling": "max",
        "train.steps": 2_000,
        "train.warmup_steps": 200,
        "train.learning_rate": 1.5e-3,
        "train.batch_size": 64,
        "train.eval_every": 500,
        "train.eval_batch_size": 250,
    },
]
