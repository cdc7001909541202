"""Nyström attention with 16 to 512 landmarks, three seeds each.

Paper:     Nyströmformer, arXiv 2102.03902, Table 3, has one number only: 64 by its code's README
Data:      as table.py
Train:     python -m lra.sweep configs/sweeps/landmarks.py --results=runs/sweeps.jsonl \\
               --known=results/accuracy.jsonl --known=results/sweeps.jsonl
Published: those of Table 3, in the config of each task
Here:      30.63, 30.75 and 30.38 with 16, 32 and 128 landmarks on ListOps (means of three seeds,
           of which seed 2 never learned; results/sweeps.jsonl, discussed in
           results/LISTOPS.md); for 64 see the table; the others not run yet
Chance:    in the config of each task
Time:      --dry_run estimates it from the rows there are; on a GPU the inverse has no kernel above
           64 landmarks (benchmarks/README.md)
"""

NUM_LANDMARKS = (16, 32, 64, 128, 256, 512)


def runs(tasks: tuple[str, ...] = ("listops", "image")) -> list[dict[str, object]]:
    """Return a run for every task and number of landmarks."""
    return [
        {
            "config": f"configs/{task}.py:nystrom",
            "seeds": (0, 1, 2),
            "model.attention.num_landmarks": number,
        }
        for task in tasks
        for number in NUM_LANDMARKS
    ]
