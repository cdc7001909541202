"""Analyse the attention of a trained model, and how closely other attentions approximate it.

    python -m lra.analysis --workdir=runs/listops-nystrom
    python -m lra.analysis --workdir=runs/text --seed=1 --length=1024 --methods=nystrom,linformer
    python -m lra.analysis --random --out=analysis          without a model: random q, k, v only

Covers the errors of each attention and of the best approximation of the same rank, by size;
Nyström's errors by iterations of its pseudo-inverse, up to the limit of Lemma 2; heat maps; the
spectrum of attention matrices; Linformer's Theorem 1; and what Performer's epsilon covers. Inputs
are q, k and v of validation examples under the best parameters (or the last, --last), and random
ones. Writes analysis.jsonl, ANALYSIS.md and figures/. Computes in float64 on the CPU; time and
memory grow with --length squared (singular values: cubed).
"""

import pathlib

from lra.command_line import (
    ArgumentParser,
    folder,
    import_jax,
    positive_integer,
    positive_integers,
    run,
)
from lra.errors import UserError


def main(argv: list[str]) -> None:
    """Parse the flags and run the analysis."""
    options = _parser().parse_args(argv)
    if options.workdir is None and not options.random:
        raise UserError("--workdir=DIR of a training is needed (or --random, for no model)")
    if options.workdir is not None and options.random:
        raise UserError("--random takes no --workdir: with one, random inputs are always included")
    model_only = {"seed": options.seed, "data_dir": options.data_dir, "last": options.last or None}
    for name, value in model_only.items():
        if options.random and value is not None:
            raise UserError(f"--random takes no --{name}: there is no model")
    if options.workdir is None and options.out is None:
        raise UserError("--random needs --out=DIR")
    out = options.out or pathlib.Path(options.workdir) / "analysis"

    import_jax()
    from lra.analysis.analyse import analyse

    analyse(
        options.workdir,
        pathlib.Path(out),
        data_dir=options.data_dir,
        seed=options.seed,
        examples=options.examples,
        length=options.length,
        methods=options.methods,
        sizes=options.sizes,
        last=options.last,
    )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m lra.analysis", description=__doc__)
    parser.add_argument("--workdir", type=folder, metavar="DIR", help="folder of a run of train.py")
    parser.add_argument("--random", action="store_true", help="no model, only random q, k, v")
    parser.add_argument(
        "--out", type=folder, metavar="DIR", help="folder to write to (WORKDIR/analysis)"
    )
    parser.add_argument(
        "--data_dir", type=folder, metavar="DIR", help="prepared data (where training had it)"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="of the run's (its first)")
    parser.add_argument(
        "--last", action="store_true", help="the parameters of the last step, not the best"
    )
    parser.add_argument(
        "--examples", type=positive_integer, default=4, metavar="N", help="validation examples (4)"
    )
    parser.add_argument(
        "--length", type=positive_integer, default=512, metavar="N", help="positions of each (512)"
    )
    parser.add_argument(
        "--methods",
        type=_names,
        metavar="A,B",
        help="attentions to approximate with (those of lra/analysis/methods.py)",
    )
    parser.add_argument(
        "--sizes",
        type=positive_integers,
        metavar="M,N",
        help="landmarks, projections, ... (powers of two)",
    )
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


if __name__ == "__main__":
    run(main, out_of_memory="a smaller --length or fewer --examples need less")
