"""Table 3 of the Nyströmformer paper, three seeds for each cell.

Paper:     Xiong et al., 2021, arXiv 2102.03902
Data:      ListOps and Pathfinder are generated; the others:
           python -m lra.data.prepare all --dry_run
Train:     python -m lra.sweep configs/sweeps/table.py --results=runs/table.jsonl
           with --config.dtype=bfloat16 on a GPU or TPU
Published: in the config of each task
Here:      in the config of each task, and results/RESULTS.md
Chance:    in the config of each task
Time:      --dry_run estimates it from the rows there are

Tasks run one after the other, those with the most informative results for their time first.
"""

TASKS = ("listops", "image", "pathfinder", "text", "retrieval")
ATTENTIONS = ("standard", "nystrom", "linformer", "performer", "reformer")


def runs(tasks: tuple[str, ...] = TASKS) -> list[dict[str, object]]:
    """Return a run for every task and attention."""
    return [
        {"config": f"configs/{task}.py:{attention}", "seeds": (0, 1, 2)}
        for task in tasks
        for attention in ATTENTIONS
    ]
