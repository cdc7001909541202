"""Pages written by hand: accuracies are those of the rows, links lead somewhere."""

import json
import pathlib
import re
import statistics

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from benchmarks import first_steps, table_hours
from configs.default import ATTENTIONS
from lra import records, training_rows
from lra.analysis import page as analysis
from lra.published import TABLE3, TABLE_TASKS
from lra.report import __main__ as report
from lra.report.cells import task_title
from lra.report.formats import plain
from lra.row import LRA_DATA, Row, latest
from lra.settings import load_config
from lra.sweep.sweep_file import load_sweep
from lra.training_rows import LossRow, PeerRow, StepRow

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "results").glob("*.md"))),
    "results/analysis/ANALYSIS.md",
    "results/training/TRAINING.md",
)
NAMES = {
    "standard": "Standard",
    "reformer": "Reformer",
    "linformer": "Linformer",
    "performer": "Performer",
    "nystrom": "Nyströmformer",
}


def of_table(attention: str, task: str) -> list[Row]:
    """The committed results of a cell of the table, by seed, in the format of its first."""
    rows = latest(records.read(ROOT / "results" / "accuracy.jsonl"))
    own = [row for row in rows if (row.task, row.attention) == (task, attention)]
    assert all(row.protocol == "table3" for row in own)
    alike = [row for row in own if row.status == "ok" and row.dtype == own[0].dtype]
    return sorted(alike, key=lambda row: row.seed)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"


def cell(attention: str, task: str) -> str:
    """`36.60 ± 1.41 (2)† / 37.15`: ours, its spread over seeds, their number, published.

    The dagger: on other data than LRA's.
    """
    rows = of_table(attention, task)
    found = [row.test_accuracy for row in rows]
    other = "" if all(row.data in LRA_DATA for row in rows) else "†"
    spread = f" ± {percent(statistics.stdev(found))}" if len(found) > 1 else ""
    ours = f"{percent(statistics.mean(found))}{spread} ({len(found)}){other}" if found else "–"
    return f"{ours} / {TABLE3[attention][task]:.2f}"


def assert_has_line(page: str, line: str) -> None:
    assert line in (ROOT / page).read_text().splitlines(), f"{page} needs this line:\n{line}"


@pytest.mark.parametrize("attention", NAMES)
def test_the_table_of_the_readme_is_that_of_the_rows(attention):
    cells = [NAMES[attention], *(cell(attention, task) for task in TABLE_TASKS)]
    assert_has_line("README.md", f"| {' | '.join(cells)} |")


@pytest.mark.parametrize("task", TABLE_TASKS)
def test_the_protocol_of_the_readme_is_that_of_the_configs(task):
    train = load_config(f"configs/{task}.py").train
    values = (train.steps, train.warmup_steps, train.batch_size, train.eval_every)
    texts = (f"{value:,}" for value in values)
    assert_has_line("README.md", f"| {task_title(task)} | {' | '.join(texts)} |")


@pytest.mark.parametrize("attention", NAMES)
def test_the_seeds_of_listops_are_those_of_the_rows(attention):
    published = TABLE3[attention]["listops"]
    for row in of_table(attention, "listops"):
        best, last = percent(row.test_accuracy), percent(row.test_accuracy_last)
        line = f"| {NAMES[attention]} | {row.seed} | {best} | {last} | {published:.2f} |"
        assert_has_line("results/LISTOPS.md", line)


def test_other_data_are_named_where_their_accuracies_are():
    marks = {
        (row.task, row.data)
        for name in NAMES
        for task in TABLE_TASKS
        for row in of_table(name, task)
    }
    for task, mark in marks:
        if mark not in LRA_DATA:
            assert f"\n† {mark}: " in (ROOT / "README.md").read_text()
            page = (ROOT / "results" / f"{task.upper()}.md").read_text()
            assert f"\n{mark}: " in page
            assert f"\n| {mark} | seed |" in page


SIZES = {
    "linformer": "projections",
    "nystrom": "landmarks",
    "performer": "features",
    "reformer": "hash rounds",
}
SIZE_KEYS = [
    [f"model.attention.{option}"]
    for option in ("proj_dim", "num_landmarks", "num_features", "num_hashes")
]


def lines_of(path: str) -> list[dict]:
    """The objects of a file of JSON lines, with their seals."""
    return [json.loads(line) for line in (ROOT / "results" / path).read_text().splitlines()]


def evaluated_runs(task: str = "listops") -> list[tuple[dict, dict]]:
    """Rows of a task whose runs have their evaluations committed, with these, by seed."""
    rows = {
        row["sha256"]: row for name in ("accuracy", "sweeps") for row in lines_of(f"{name}.jsonl")
    }
    pairs = [(rows[run["row_sha256"]], run) for run in lines_of(f"curves/{task}.jsonl")]
    return sorted(pairs, key=lambda pair: pair[0]["seed"])


def leaves(run: dict) -> str:
    """The step of the last evaluation below 18 %."""
    evaluations = zip(run["step"], run["val_accuracy"], strict=True)
    step = max(step for step, accuracy in evaluations if accuracy < 0.18)
    return "never" if step == run["step"][-1] else f"{step:,}"


def test_runs_of_other_sizes_have_their_evaluations():
    of_sizes = [row for row in lines_of("sweeps.jsonl") if [*row["config_overrides"]] in SIZE_KEYS]
    evaluated = {row["sha256"] for row, _ in evaluated_runs()}
    assert of_sizes
    assert all(row["sha256"] in evaluated for row in of_sizes)


@pytest.mark.parametrize("task", TABLE_TASKS)
def test_evaluations_are_those_of_their_rows(task):
    for row, run in evaluated_runs(task):
        for key in ("task", "attention", "config_overrides", "seed"):
            assert run[key] == row[key]
        best = run["step"].index(row["best_step"])
        assert run["val_accuracy"][best] == max(run["val_accuracy"])
        assert run["val_accuracy"][best] == pytest.approx(row["val_accuracy"], abs=5e-5)


def test_the_sizes_of_listops_are_those_of_rows_and_evaluations():
    sizes: dict[tuple[str, int], list[tuple[dict, dict]]] = {}
    for row, run in evaluated_runs():
        if [*row["config_overrides"]] in SIZE_KEYS:
            (size,) = row["config_overrides"].values()
            sizes.setdefault((row["attention"], size), []).append((row, run))
    assert len(sizes) >= 6
    for (attention, size), runs in sizes.items():
        texts = [
            ", ".join(percent(row[field]) for row, _ in runs)
            for field in ("test_accuracy", "test_accuracy_last")
        ]
        unit = SIZES[attention].removesuffix("s") if size == 1 else SIZES[attention]
        title = f"{NAMES[attention]}, {size} {unit}"
        steps = ", ".join(leaves(run) for _, run in runs)
        if attention == "performer":  # leaves and comes back, several times
            steps = "[see below](#performers-that-fall-back)"
        assert_has_line("results/LISTOPS.md", f"| {title} | {' | '.join([*texts, steps])} |")


def test_when_seeds_of_the_table_learn_is_as_in_their_evaluations():
    page = (ROOT / "results" / "LISTOPS.md").read_text()
    table = page[page.index("| leaves 17 % at step | seed 0") :].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    found = {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines}
    steps: dict[str, dict[int, str]] = {}
    for row, run in evaluated_runs():
        if not row["config_overrides"]:
            steps.setdefault(NAMES[row["attention"]], {})[row["seed"]] = leaves(run)
    assert list(steps["Nyströmformer"]) == [3, 4, 5, 6]
    for name, of_seeds in steps.items():
        assert found[name]["seeds 3 to 6"] == ", ".join(of_seeds.values())


def test_the_seeds_that_trained_longer_are_those_of_their_rows():
    longer = [pair for pair in evaluated_runs() if "train.steps" in pair[0]["config_overrides"]]
    assert [row["seed"] for row, _ in longer] == [2, 4]
    for row, run in longer:
        assert (row["attention"], row["steps"]) == ("nystrom", 10_000)
        cells = [percent(row[field]) for field in ("test_accuracy", "test_accuracy_last")]
        assert_has_line(
            "results/LISTOPS.md", f"| {row['seed']} | {' | '.join(cells)} | {leaves(run)} |"
        )


def test_the_runs_of_performer_without_epsilon_are_those_of_their_rows():
    changes = {"model.attention.epsilon": 0.0, "train.eval_every": 250}
    rows = [row for row in lines_of("sweeps.jsonl") if row["config_overrides"] == changes]
    assert sorted(row["seed"] for row in rows) == [0, 1, 2]
    steps = {row["seed"]: leaves(run) for row, run in evaluated_runs() if row in rows}
    for row in rows:
        best, last = (percent(row[field]) for field in ("test_accuracy", "test_accuracy_last"))
        left = steps.get(row["seed"], "500")  # of seed 0 there is a picture only
        assert_has_line("results/LISTOPS.md", f"| seed {row['seed']} | {best} | {last} | {left} |")
    found = [row["test_accuracy"] for row in rows]
    text = f"{percent(statistics.mean(found))} ± {percent(statistics.stdev(found))} %"
    assert text in (ROOT / "README.md").read_text()


def test_the_run_of_listops_in_bfloat16_is_that_of_its_row():
    ((row, run),) = (pair for pair in evaluated_runs() if pair[0]["dtype"] == "bfloat16")
    assert (row["attention"], row["seed"], row["config_overrides"]) == (
        "linformer",
        0,
        {"dtype": "bfloat16"},
    )
    (own,) = (one for one in of_table("linformer", "listops") if one.seed == 0)
    for dtype, best, last, leaves_at in (
        ("float32", own.test_accuracy, own.test_accuracy_last, "550"),
        ("bfloat16", row["test_accuracy"], row["test_accuracy_last"], leaves(run)),
    ):
        line = f"| {dtype} | {percent(best)} | {percent(last)} | {leaves_at} |"
        assert_has_line("results/LISTOPS.md", line)


@pytest.mark.parametrize("attention", NAMES)
@pytest.mark.parametrize("task", ["text", "image", "pathfinder", "retrieval"])
def test_the_seeds_of_a_task_are_those_of_the_rows(task, attention):
    published = TABLE3[attention][task]
    for row in of_table(attention, task):
        best, last = percent(row.test_accuracy), percent(row.test_accuracy_last)
        line = (
            f"| {NAMES[attention]} | {row.seed} | {best} | {row.best_step:,} | {last} "
            f"| {published:.2f} |"
        )
        assert_has_line(f"results/{task.upper()}.md", line)


@pytest.mark.parametrize("task", TABLE_TASKS)
def test_the_losses_of_short_trainings_are_those_of_the_rows(task):
    rows = training_rows.read(ROOT / "results" / "training" / "first_steps.jsonl", LossRow)
    cells = {
        row["attention"]: first_steps.cell(row["losses"]) for row in rows if row["task"] == task
    }
    assert list(cells) == [name for name in ATTENTIONS if name in cells]
    assert TABLE3.keys() <= cells.keys()
    assert_has_line("results/SHORT_TRAININGS.md", f"| {task} | {' | '.join(cells.values())} |")


def test_the_results_are_rendered_from_the_rows(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(report, "save", lambda figure, folder: [])  # drawing takes long
    paths = [str(path) for path in sorted(pathlib.Path("results").glob("*.jsonl"))]
    curves = [str(path) for path in sorted(pathlib.Path("results/curves").glob("*.jsonl"))]
    speeds = "--speeds=results/training/train_step.jsonl"
    report.main([*paths, speeds, "--curves", *curves, f"--out={tmp_path}"])
    rendered = (tmp_path / "RESULTS.md").read_text()
    assert (ROOT / "results" / "RESULTS.md").read_text() == rendered, (
        "python -m lra.report results/*.jsonl --speeds=results/training/train_step.jsonl "
        "--curves results/curves/*.jsonl --out=results"
    )


def test_the_tables_of_the_analysis_are_those_of_its_rows():
    rows, page = lines_of("analysis/analysis.jsonl"), ROOT / "results" / "analysis" / "ANALYSIS.md"
    for table in analysis.tables(rows):
        assert f"## {table.title}\n\n{table.caption}\n\n{plain(table)}" in page.read_text()
    assert page.read_text().startswith(analysis.page(rows[0], [], []).rstrip("\n"))


def text_of(page: str) -> str:
    """A page, without its line breaks."""
    return " ".join((ROOT / page).read_text().split())


def test_the_ratios_to_pytorch_are_those_of_the_rows():
    rows = training_rows.read(ROOT / "results" / "training" / "torch_train_step.jsonl", PeerRow)
    exact, others = [], []
    for device, compiled in (("AMD EPYC", False), ("AMD EPYC", True), ("Intel Xeon", False)):
        ratios = {
            row["attention"]: row["ratio"]
            for row in rows
            if row["device"].replace("(R)", "").startswith(device)
            and row.get("compiled", False) == compiled
        }
        assert list(ratios) == ["standard", "nystrom", "linformer", "performer", "reformer"]
        each = " | ".join(f"{ratio:.1f}" for ratio in ratios.values())
        mean = statistics.geometric_mean(ratios.values())
        title = f"{device}, {'compiled' if compiled else 'eager'}"
        assert_has_line("benchmarks/README.md", f"| {title} | {each} | {mean:.2f} |")
        exact.append(f"{ratios.pop('standard'):.1f}")
        others.append(f"{min(ratios.values()):.1f} to {max(ratios.values()):.1f}")
    for told in (
        f"a training step on ListOps (batch 4, full length) was {others[0]} times",
        f"against `torch.compile` {others[1]} times",
        f"on an Intel Xeon {others[2]}. ",
        f"our step was {exact[0]}, {exact[1]} and {exact[2]} times as fast",
    ):
        assert told in text_of("README.md")


def ratios_of_time(device: str) -> dict[str, float]:
    """Best peer's time over ours, forward and backward, d = 64, float32, by the rendered page."""
    heading = rf"## Cost of one attention module: d = 64, 2 heads, float32; {device}.*?"
    page = (ROOT / "results" / "RESULTS.md").read_text()
    table = re.search(heading + r"(\| Ours .*?)\n\n", page, re.DOTALL)[1]
    names, _, *lines = ([x.strip() for x in line.split("|")[1:-1]] for line in table.splitlines())
    column = names.index("Time, forward and backward")
    return {line[0]: float(line[column].partition("×")[0]) for line in lines}


def test_the_ratios_to_peers_are_those_of_the_rendered_page():
    page, readme = text_of("benchmarks/README.md"), text_of("README.md")
    order = (
        "Nyströmformer-64",
        "Linformer-256",
        "Performer-256",
        "Reformer-2",
        "Longformer-257",
        "Standard (chunked)",
    )
    epyc, xeon = (ratios_of_time(device) for device in ("AMD EPYC", "Intel"))
    table = re.findall(r"^\| .*? \| ([\d.]+) \(", (ROOT / "benchmarks/README.md").read_text(), re.M)
    assert table[: len(order)] == [f"{epyc[name]:.1f}" for name in order]
    least, most = (f"{extreme(epyc[name] for name in order):.1f}" for extreme in (min, max))
    assert f"our modules were {least} to {most} times as fast in the mean" in readme
    approximations = [xeon[name] for name in order[:-1]]
    *others, last = (f"{ratio:.1f}" for ratio in approximations)
    together = statistics.geometric_mean(approximations)
    told = f"the ratios of time are {', '.join(others)} and {last} in the order of the table, "
    assert f"{told}{together:.1f} together" in page
    assert f"But `chunked` has {xeon[order[-1]]:.1f} there" in page
    least, most = min(approximations), max(approximations)
    assert f"the approximations were {least:.1f} to {most:.1f} times as fast in that mean" in readme
    assert f"exact attention took {1 / xeon[order[-1]]:.1f} times as long" in readme


def test_the_findings_of_the_analysis_are_those_of_its_page():
    page, readme = text_of("results/analysis/ANALYSIS.md"), text_of("README.md")

    def found(pattern):
        """The numbers that a pattern first finds in the page, whose columns may be wider."""
        return re.findall(pattern.replace("|", r" *\| *"), page)

    few, many = (found(rf"Nyströmformer|{n}|{n}|([\d.]+)|")[0] for n in (4, 32))
    told = f"from {float(few):.2f} with 4 landmarks to {float(many):.2f} with 32"
    exact = found(r"trained|63|.*?|([\d.e-]+)| \| random")[0].split("|")[-1]
    assert f"{told}, and to {float(exact):.0e}".replace("e-0", "e-") in readme
    first, second = (
        sorted(map(float, found(rf"trained|{layer}|\d|([\d.]+)|–"))) for layer in (1, 2)
    )
    share = " to ".join(f"{100 * share:.0f}" for share in first)
    assert f"holds {share} % of their sum in the first layer, more than 99 %" in readme
    assert second[0] > 0.99


def test_the_readmes_python_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    sweep, example, shards, _ = blocks  # the last one: tests/lra/test_restored.py
    mine = tmp_path / "mine.py"
    mine.write_text(sweep)
    rates = [run.config["train.learning_rate"] for run in load_sweep(str(mine)).runs]
    assert rates == [5e-5, 1e-4, 2e-4]
    small = example.replace("4096", "256").replace("3000", "200")
    assert small.count("256") == 4
    namespace: dict = {}
    with jax.numpy_rank_promotion("allow"):  # JAX's default, unlike in these tests
        exec(small, namespace)
        whole = namespace["out"]
        exec(shards, namespace)
    out = namespace["out"]
    assert out.shape == whole.shape == (2, 256, 8, 64)
    assert out.sharding.spec == PartitionSpec("data")
    np.testing.assert_allclose(out, whole, atol=1e-5)


def steps_on(device: str) -> dict[tuple[str, str, int], StepRow]:
    """The latest row of each task, attention and number of seeds on a device, without overrides."""
    rows = training_rows.read(ROOT / "results" / "training" / "train_step.jsonl", StepRow)
    return {
        (row["task"], row["attention"], row["seeds"]): row
        for row in rows
        if "failed" not in row and device in row["device"] and not row["overrides"]
    }


def test_what_three_seeds_cost_is_that_of_the_rows():
    rows = steps_on("EPYC").items()
    cost = [row["cost_against_one_seed"] for (*_, seeds), row in rows if seeds == 3]
    told = f"three in one program take {min(cost):.1f} to {max(cost):.1f} times as long"
    assert told in text_of("benchmarks/README.md")


def test_what_a_size_costs_is_that_of_the_rows():
    page = text_of("results/LISTOPS.md")
    rows = training_rows.read(ROOT / "results" / "training" / "train_step.jsonl", StepRow)
    speeds = {
        (row["attention"], *row["overrides"]): f"{row['steps_per_second']:.2f}"
        for row in rows
        if "failed" not in row
        and (row["task"], row["seeds"], "EPYC" in row["device"]) == ("listops", 1, True)
    }

    def line(attention, option, sizes):
        default = load_config(f"configs/listops.py:{attention}").model.attention[option]
        keys = [() if n == default else (f"model.attention.{option}={n}",) for n in sizes]
        return [speeds.get((attention, *key), "–") for key in keys]

    for attention, option in (
        ("nystrom", "num_landmarks"),
        ("linformer", "proj_dim"),
        ("performer", "num_features"),
    ):
        cells = " | ".join(line(attention, option, (16, 32, 64, 128, 256, 512)))
        assert_has_line("results/LISTOPS.md", f"| {NAMES[attention]} | {cells} |")
    *others, last = line("reformer", "num_hashes", (1, 2, 4, 8))
    assert f"Reformer makes {', '.join(others)} and {last} with 1, 2, 4 and 8 hash rounds" in page
    assert f"exact attention {speeds[('standard',)]}." in page


def test_the_speeds_on_a_gpu_are_those_of_the_rows():
    rows = steps_on("H200")
    batches = {"retrieval": "32 pairs", "image": "256", "pathfinder": "256"}
    for task in TABLE_TASKS:
        cells = [
            f"{rows[task, name, 1]['steps_per_second']:,.0f} "
            f"({rows[task, name, 3]['cost_against_one_seed']:.2f})"
            for name in ("standard", "reformer", "linformer", "performer", "nystrom")
        ]
        title = f"{task.title().replace('ops', 'Ops')}, batch {batches.get(task, '32')}"
        assert_has_line("benchmarks/README.md", f"| {title} | {' | '.join(cells)} |")


def test_the_minutes_on_a_gpu_are_those_of_the_rows():
    rows = training_rows.read(ROOT / "results" / "training" / "train_step.jsonl", StepRow)
    own = table_hours.cells(rows, "H200", "bfloat16")
    found = {task: table_hours.minutes_of(task, own) for task in TABLE_TASKS}
    assert all(len(minutes) == len(TABLE3) for minutes in found.values())
    page, total = text_of("benchmarks/README.md"), sum(map(sum, found.values()))
    assert f"{total:.0f} minutes on this H200, all of them measured" in page
    assert f"take {total:.0f} minutes there, without compilation" in text_of("README.md")
    for task, minutes in found.items():
        assert re.search(rf"\b{task.title().replace('ops', 'Ops')} {sum(minutes):.1f}\b", page)


def test_the_short_trainings_are_those_of_the_rows():
    page = (ROOT / "results" / "SHORT_TRAININGS.md").read_text()
    rows = records.read(ROOT / "results" / "short.jsonl")
    alone = [row for row in rows if row.seeds_in_program == 1]
    tasks = "Image", "Text", "Pathfinder, easy", "Pathfinder, hard (the benchmark's"
    assert sum(page.count(f"\n| {task}") for task in tasks) == len(alone) == 4
    accuracies = {"float32": [], "bfloat16": []}
    for row in rows:
        if row not in alone:
            accuracies[row.dtype].append(row.test_accuracy)
    for name, values in accuracies.items():
        assert len(values) == 4
        assert f"| {name} | {' | '.join(map(percent, values))} |" in page
    lost = [100 * (a - b) for a, b in zip(*accuracies.values(), strict=True)]
    error = statistics.stdev(lost) / 2
    told = f"{statistics.mean(lost):.2f} points less, with a standard error of {error:.2f}"
    assert told in text_of("results/SHORT_TRAININGS.md")
    for other in ("results/PATHFINDER.md", "README.md"):
        assert told.replace(" less", "") in text_of(other)
    for row in alone:
        steps, batch = row.steps, row.config["train.batch_size"]
        of = "reviews" if row.task == "text" else "images"
        found = f"{percent(row.test_accuracy)} | {percent(row.val_accuracy)}"
        minutes = f"{row.wall_seconds / 60:.0f}"
        chance = 10 if row.task == "image" else 50
        assert f"| {steps:,} of {batch} {of} | {found} | {chance} | {minutes} |" in page


def anchors(page: pathlib.Path) -> set[str]:
    """What links may name of a page: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w -]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    path = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", path.read_text())
    local = [link for pair in links for link in pair if link and not link.startswith("http")]
    for link in local:
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
