"""Evaluate the best and the last parameters of a run on a split, every example once.

    python eval.py --workdir=runs/listops-nystrom
    python eval.py --workdir=runs/listops-nystrom --split=validation --predictions=out.npz

The file of predictions holds `stored_split`, `index` [n], `label` [n], `seeds` [s], `diverged` [s]
and `logits` [s, n, classes] of the parameters with the highest validation accuracy; logits of a
diverged seed are not results. Its example i is example `index[i]` of the split `stored_split` of
the prepared data: with `data.holdout`, train and validation are both parts of the stored train.
"""

from lra.command_line import (
    ArgumentParser,
    file_to_write,
    folder,
    import_jax,
    positive_integer,
    run,
)
from lra.errors import UserError

_EVALUATE_IN_LESS = "a smaller --eval_batch_size needs less"


def main(argv: list[str]) -> int:
    """Parse the flags, evaluate, and return the exit status."""
    parser = ArgumentParser(prog="eval.py", description=__doc__)
    parser.add_argument(
        "--workdir", type=folder, required=True, metavar="DIR", help="folder of the run"
    )
    parser.add_argument(
        "--data_dir", type=folder, metavar="DIR", help="prepared data (where training had it)"
    )
    parser.add_argument("--split", default="test", choices=("train", "validation", "test"))
    parser.add_argument(
        "--predictions", type=file_to_write, metavar="FILE.npz", help="write logits per seed there"
    )
    parser.add_argument(
        "--eval_batch_size",
        type=positive_integer,
        metavar="N",
        help="examples at a time, which affects rounding only (as in training)",
    )
    options = parser.parse_args(argv)
    if options.predictions and not options.predictions.endswith(".npz"):
        raise UserError(f"--predictions={options.predictions} does not end in .npz")

    import_jax()
    from lra.evaluation import evaluate_workdir

    evaluate_workdir(
        options.workdir,
        data_dir=options.data_dir,
        split=options.split,
        predictions=options.predictions,
        eval_batch_size=options.eval_batch_size,
    )
    return 0


if __name__ == "__main__":
    run(main, out_of_memory=_EVALUATE_IN_LESS)
