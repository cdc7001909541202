"""All five attentions on short ListOps: minutes on a CPU, and not an LRA number.

    python -m lra.sweep configs/sweeps/quick.py --results=runs/quick/rows.jsonl

Expressions of 16 to 63 symbols, generated for this sweep; the majority class is right in about
16 % of them.
"""

ATTENTIONS = ("standard", "nystrom", "linformer", "performer", "reformer")

DATA = {
    "listops": {
        "min_length": 15,
        "max_length": 64,
        "train": 20_000,
        "validation": 1_000,
        "test": 1_000,
    }
}

# Of each attention: what its default size would be too large for at this length.
SMALLER = {
    "nystrom": {"model.attention.num_landmarks": 16},
    "linformer": {"model.attention.proj_dim": 32},
    "performer": {"model.attention.num_features": 64},
    "reformer": {"model.attention.chunk_length": 16},
}

RUNS = [
    {
        "config": f"configs/listops.py:{attention}",
        "seeds": (0, 1),
        "train.steps": 1_500,
        "train.warmup_steps": 150,
        "train.learning_rate": 1e-3,  # with 2e-3 Performer falls back, see epsilon.py
        "train.batch_size": 32,
        "train.eval_every": 250,
        "train.eval_batch_size": 250,
    }
    | SMALLER.get(attention, {})
    for attention in ATTENTIONS
]
