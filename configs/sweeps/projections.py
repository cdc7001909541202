"""The size that each of the other approximations spends, three seeds each.

    python -m lra.sweep configs/sweeps/projections.py --results=results/sweeps.jsonl

Linformer's projection dimension, Performer's random features and Reformer's hash rounds; Table 3
has 256, 256 and 2.
"""

SIZES = {
    "linformer": ("model.attention.proj_dim", (32, 64, 128, 256, 512)),
    "performer": ("model.attention.num_features", (32, 64, 128, 256, 512)),
    "reformer": ("model.attention.num_hashes", (1, 2, 4, 8)),
}


def runs(tasks=("listops", "image")):
    """Every size of every attention on each of `tasks`."""
    return [
        {"config": f"configs/{task}.py:{attention}", "seeds": (0, 1, 2), key: size}
        for task in tasks
        for attention, (key, sizes) in SIZES.items()
        for size in sizes
    ]
