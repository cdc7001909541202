"""One analysis, from a workdir to its files."""

import json
import os
import pathlib
from typing import Any

import jax
import numpy as np

from lra import environment, process
from lra.analysis.approximation import approximation_rows, own_rows
from lra.analysis.features import feature_rows
from lra.analysis.inputs import Inputs, Trained, random_inputs, trained_inputs
from lra.analysis.look import DATA, Rows
from lra.analysis.matrices import exact_matrix, matrix_errors
from lra.analysis.matrix_pictures import HeatMap
from lra.analysis.methods import Method, choose_methods, too_large
from lra.analysis.nystrom import iteration_rows, landmarks_of, nystrom_matrix
from lra.analysis.page import figures, page, tables
from lra.analysis.spectrum import spectrum_rows
from lra.analysis.theorem import theorem_rows
from lra.errors import UserError, of_system
from lra.files import write_atomically
from lra.report.cells import task_title
from lra.report.figure_files import save
from lra.report.formats import plain
from lra.restored import Restored, restore_workdir

_HEADS_OF_LRA = {"heads": 2, "head_dim": 32}  # for random inputs without a model
_MOST_MAPS, _LANDMARKS = 4, 64  # of heat maps
_LEAST_LENGTH = 8
_LEAST_REAL = 2  # real positions of each example: with fewer Theorem 1 says nothing


def analyse(
    workdir: str | os.PathLike | None,
    out: pathlib.Path,
    *,
    data_dir: str | os.PathLike | None,
    seed: int | None,
    examples: int,
    length: int,
    methods: list[str] | None,
    sizes: list[int] | None,
    last: bool,
) -> None:
    """Write rows, figures and the page that shows them to `out`; print the tables.

    Args:
        workdir: Workdir of a run; None for only random inputs.
        out: Output folder, created if missing.
        data_dir: Folder of the prepared data; None for the data of the training.
        seed: Seed of the run to analyse; None for its first.
        examples: Number of validation examples.
        length: Maximal number of positions of each example.
        methods: Names of attentions; None for those of `METHODS`.
        sizes: Sizes of the attentions; None for powers of two.
        last: Whether to analyse the parameters of the last step, not the best.

    Raises:
        UserError: There is no run or checkpoint, or no best parameters yet (before the first
            validation), a seed or method is unknown, or sequences are too short to approximate
            anything, too long for the memory, or nearly all padding, or JAX cannot be used
            (`environment.check_jax`).
    """
    environment.check_jax()
    chosen_methods = choose_methods(methods)
    run_row: dict[str, Any] = {"kind": "run", "workdir": None}
    shape, trained = _HEADS_OF_LRA, None
    if workdir is not None:
        restored = restore_workdir(workdir, data_dir=data_dir)
        seed = restored.trainer.config.seeds[0] if seed is None else seed
        trained = trained_inputs(restored, seed=seed, examples=examples, length=length, last=last)
        run_row |= _about(workdir, restored, seed, trained, last)
        _, examples, length, heads, head_dim = trained.inputs.q.shape
        shape = {"heads": heads, "head_dim": head_dim}
    if length < _LEAST_LENGTH:
        raise UserError(f"{length} positions are too few to analyse: {_LEAST_LENGTH} at least")
    _check_memory(examples, length, shape["heads"])
    if trained:
        _check_real(trained.inputs)
    for method, size in too_large(chosen_methods, length, sizes):
        print(f"{method.option} = {size} is left out: more than {length} positions")
    run_row |= {"length": length, "examples": examples, **shape}
    run_row |= {"commit": environment.commit(), "versions": environment.versions()}
    _make_folders(out)
    random = random_inputs(examples=examples, length=length, **shape)
    with jax.default_device(_cpu()), jax.enable_x64(True):
        rows = [run_row, *_rows(random, chosen_methods, sizes), *feature_rows(random)]
        if trained:
            rows += _rows(trained.inputs, chosen_methods, sizes)
            rows += feature_rows(trained.inputs, trained.attentions)
            rows += own_rows(trained.inputs, trained.attentions, run_row["options"])
        maps = _heat_maps(trained.inputs if trained else random)
    _write(rows, maps, out)


def _make_folders(out: pathlib.Path) -> None:
    """Make the folders of the report, before anything is computed for it."""
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to --out={out}: {of_system(error)}") from None


def _check_memory(examples: int, length: int, heads: int) -> None:
    """Raise UserError if the attention matrices, in float64, are larger than the machine's memory.

    Much smaller ones may still not fit, since several are in memory at once.
    """
    memory, needed = process.machine_memory_bytes(), 8 * examples * heads * length**2
    if memory is not None and needed > memory:
        raise UserError(
            f"the attention matrices of {examples} x {length} positions take {needed / 1e9:,.1f} "
            f"GB, and this machine has {memory / 1e9:,.1f}: choose a smaller --length or fewer "
            "--examples"
        )


def _check_real(inputs: Inputs) -> None:
    """Raise UserError if an example is nearly all padding (pixels of value 0 count as padding).

    Such an example would count as approximated without error.
    """
    least = int(np.min(np.sum(inputs.mask, axis=1)))
    if least < _LEAST_REAL:
        raise UserError(
            f"an example has only {least} of {inputs.length} positions that are no padding: choose "
            "a larger --length or fewer --examples"
        )


def _about(
    workdir: str | os.PathLike, restored: Restored, seed: int, trained: Trained, last: bool
) -> dict[str, Any]:
    config = restored.trainer.config
    options = config.model.attention.to_dict()
    chosen_text = (
        "the last one" if last else f"of {restored.step} so far, best on the validation set"
    )
    print(
        f"{task_title(config.task)}, {options['name']}, seed {seed}: parameters of step "
        f"{trained.step} ({chosen_text})"
    )
    return {
        "workdir": os.fsencode(workdir).decode(errors="replace"),
        "task": config.task,
        "data_mark": restored.prepared.manifest["data"],
        "attention": options["name"],
        "options": options,
        "seed": seed,
        "step": trained.step,
        "parameters": "last" if last else "best",
        "layers": trained.inputs.layers,
    }


def _rows(inputs: Inputs, methods: list[Method], sizes: list[int] | None) -> Rows:
    examples = len(inputs.mask)
    print(f"{DATA[inputs.data]}: {examples} examples of {inputs.length} positions", flush=True)
    return [
        *approximation_rows(inputs, methods, sizes),
        *iteration_rows(inputs, landmarks_of(inputs.length)),
        *spectrum_rows(inputs),
        *theorem_rows(inputs),
    ]


def _write(rows: Rows, maps: list[HeatMap], out: pathlib.Path) -> None:
    """Write everything to `out`; print tables and paths."""
    all_figures, all_tables = figures(rows, maps), tables(rows)
    written = [path for figure in all_figures for path in save(figure, out / "figures")]
    content = {"analysis.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    content["ANALYSIS.md"] = page(rows[0], all_tables, all_figures)  # last, since it refers to all
    for name, text in content.items():
        write_atomically(out / name, text)
        written.append(out / name)
    for table in all_tables:
        print(f"{table.title}\n\n{plain(table)}")
    print("wrote", *written, sep="\n  ")


def _heat_maps(inputs: Inputs) -> list[HeatMap]:
    """Map the first example: exact, and by Nyström with 64 landmarks or a quarter of its length.

    At most four heads are kept, evenly spaced over layers and heads.
    """
    landmarks = max(1, min(_LANDMARKS, inputs.length // 4))
    maps = []
    for layer in range(inputs.layers):
        q, k, v, mask = (x[:1] for x in inputs.layer(layer))
        exact = exact_matrix(q, k, mask)
        approximated = nystrom_matrix(q, k, mask, num_landmarks=landmarks)
        errors = matrix_errors(approximated, exact, v)
        maps += [
            HeatMap(
                inputs.data,
                layer,
                head,
                landmarks,
                float(errors.matrix[0, head]),
                np.asarray(exact[0, head]),
                np.asarray(approximated[0, head]),
            )
            for head in range(q.shape[2])
        ]
    if len(maps) <= _MOST_MAPS:
        return maps
    return [maps[round(i)] for i in np.linspace(0, len(maps) - 1, _MOST_MAPS)]


def _cpu() -> jax.Device:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        raise UserError(
            "the analysis computes on the CPU: name it as well, JAX_PLATFORMS=cuda,cpu"
        ) from None
