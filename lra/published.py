"""Published accuracies in percent, by attention and task."""

# Tasks that papers average over, in their order; Path-X is not one of them.
TABLE_TASKS = ("listops", "text", "retrieval", "image", "pathfinder")

# All tasks of the benchmark; any other is a user's own.
LRA_TASKS = (*TABLE_TASKS, "pathx")

# Xiong et al., "Nyströmformer", arXiv 2102.03902, Table 3: no seeds, no spread.
TABLE3 = {
    "standard": dict(zip(TABLE_TASKS, (37.10, 65.02, 79.35, 38.20, 74.16), strict=True)),
    "reformer": dict(zip(TABLE_TASKS, (19.05, 64.88, 78.64, 43.29, 69.36), strict=True)),
    "linformer": dict(zip(TABLE_TASKS, (37.25, 55.91, 79.37, 37.84, 67.60), strict=True)),
    "performer": dict(zip(TABLE_TASKS, (18.80, 63.81, 78.62, 37.07, 69.87), strict=True)),
    "nystrom": dict(zip(TABLE_TASKS, (37.15, 65.52, 79.56, 41.58, 70.94), strict=True)),
}

# facebookresearch/xformers, BENCHMARKS.md at 24cfe342: code adapted from the published one, ListOps
# trained for longer; 128 landmarks, Linformer's projection a quarter of the length, Performer
# redrawn.
XFORMERS = {
    "standard": dict(zip(TABLE_TASKS, (37.5, 62.66, 79.24, 38.69, 70.37), strict=True)),
    "linformer": dict(zip(TABLE_TASKS, (36.69, 57.39, 76.41, 35.57, 65.12), strict=True)),
    "performer": dict(zip(TABLE_TASKS, (19.56, 62.76, 81.1, 36.09, 67.23), strict=True)),
    "nystrom": dict(zip(TABLE_TASKS, (36.29, 63.24, 78.18, 42.86, 67.49), strict=True)),
}
