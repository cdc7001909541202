"""Nyström attention with 16 to 512 landmarks, three seeds each; 64 is Table 3's.

python -m lra.sweep configs/sweeps/landmarks.py --results=results/sweeps.jsonl
"""

NUM_LANDMARKS = (16, 32, 64, 128, 256, 512)


def runs(tasks=("listops", "image")):
    """Every number of landmarks on each of `tasks`."""
    return [
        {
            "config": f"configs/{task}.py:nystrom",
            "seeds": (0, 1, 2),
            "model.attention.num_landmarks": number,
        }
        for task in tasks
        for number in NUM_LANDMARKS
    ]
