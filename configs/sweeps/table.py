"""Table 3 of the Nyströmformer paper (arXiv 2102.03902), three seeds for each cell.

    python -m lra.sweep configs/sweeps/table.py --results=results/accuracy.jsonl

Task after task, those first whose numbers say most for their time.
"""

TASKS = ("listops", "image", "pathfinder", "text", "retrieval")
ATTENTIONS = ("standard", "nystrom", "linformer", "performer", "reformer")


def runs(tasks=TASKS):
    """All attentions on each of `tasks`."""
    return [
        {"config": f"configs/{task}.py:{attention}", "seeds": (0, 1, 2)}
        for task in tasks
        for attention in ATTENTIONS
    ]
