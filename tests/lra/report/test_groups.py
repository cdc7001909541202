"""Which rows stand in which table, and what its lines are called."""

import dataclasses
import itertools

import pytest

from lra.published import TABLE_TASKS
from lra.report.cells import divide_into_cells
from lra.report.formats import plain
from lra.report.groups import group
from lra.report.names import named_keys
from lra.report.tables import tables
from tests.lra.report.swept_rows import figures_of
from tests.lra.row_factory import CONFIG, failed_row, make_row


def test_rows_of_other_defaults_fill_no_cell():
    config = {"train.learning_rate": 1e-3, "model.attention.share": ["kv"], "dtype": "bfloat16"}
    told = make_row(0.9, attention="linformer", config=config)
    groups = group([told, make_row(0.3, attention="linformer", seed=1)])
    assert "30.00 (1)" in plain(tables(groups[0])[0])
    assert groups[1].setting == (
        "Changed from the protocol of Table 3: train.learning_rate=0.001, options of the attention."
        " Data: generated."
    )
    assert groups[1].lines[0].options == {"model.attention.share": ["kv"]}


def test_rows_that_contradict_the_protocol_they_name_fill_no_cell():
    told = make_row(0.9, config={}, config_overrides={"train.steps": 500}, protocol="table3")
    table, other = group([told, make_row(0.3, seed=1)])
    assert "30.00 (1)" in plain(tables(table)[0])
    assert "train.steps=500" in other.setting


def test_tasks_of_ones_own_depart_from_their_own_defaults():
    (found,) = group([make_row(task="parity", config_overrides={"train.steps": 9})])
    assert found.setting.startswith("Changed from the defaults of their configs: train.steps=9.")


def test_only_the_protocol_of_table_3_fills_its_cells():
    groups = group(
        [
            make_row(0.3),
            make_row(0.9, config_overrides={"train.steps": 9000}),
            make_row(0.8, config_overrides={"model.attention.num_landmarks": 32}),
        ]
    )
    assert [(g.title, g.setting) for g in groups] == [
        ("Long Range Arena: protocol of Table 3 (Nyströmformer)", ""),
        (
            "Other settings: Nyströmformer on ListOps, num_landmarks",
            "Changed from the protocol of Table 3: options of the attention. Data: generated.",
        ),
        (
            "Other settings: Nyströmformer on ListOps, steps",
            "Changed from the protocol of Table 3: train.steps=9000. Data: generated.",
        ),
    ]
    for one in groups:
        told = f"{one.setting} In percent, with".strip()
        assert tables(one)[0].caption.startswith(told)
    assert "30.00 (1)" in plain(tables(groups[0])[0])
    assert "90.00" not in plain(tables(groups[0])[0])
    assert all("Not comparable with Table 3" in plain(tables(g)[0]) for g in groups[1:])


def test_names_of_files_do_not_depend_on_other_groups():
    changed = [make_row(0.5, config_overrides={"train.steps": 9000})]
    others = [
        make_row(0.5, config_overrides={"data.holdout": 0.1}),
        make_row(0.5, data="mine"),
        make_row(0.5, config_overrides={"train.steps": 9000}, data="mine"),
    ]
    (alone,) = group(changed)
    slugs = [g.slug for g in group(changed + others)]
    assert alone.slug in slugs
    assert len(set(slugs)) == 4
    assert alone.slug.startswith("steps-")


def test_headings_are_short_and_unlike_each_other():
    steps = [{"config_overrides": {"train.steps": 9000}, "data": data} for data in ("a", "b", "c")]
    rows = [make_row(**one) for one in steps]
    rows += [make_row(attention="standard", task=t, **steps[0]) for t in ("image", "text")]
    assert [g.title for g in group(rows)] == [
        "Other settings: 2 attentions on 3 tasks, steps, other data",
        "Other settings: Nyströmformer on ListOps, steps, other data",
        "Other settings: Nyströmformer on ListOps, steps, other data (2)",
    ]


def test_headings_say_what_varies():
    shared = {"train.steps": 9, "train.batch_size": 8, "model.attention.num_landmarks": 8}
    for rates, dropouts, title in (
        ((1e-3, 3e-3), (0.1,), "learning_rate and 3 shared"),
        ((1e-3, 3e-3), (0.0, 0.1), "learning_rate, dropout and 3 shared"),
        ((1e-3,), (0.0,), "num_landmarks, dropout and 3 more"),
    ):
        (one,) = group(grid_rows(rates, dropouts, shared=shared))
        assert one.title == f"Other settings: Nyströmformer on ListOps, {title}"
    # Sizes of two attentions are no sweep, other values are.
    sizes = {"nystrom": "num_landmarks", "linformer": "proj_dim"}
    (one,) = group(
        make_row(
            attention=name,
            config_overrides={f"model.attention.{key}": 8, "train.steps": n, "data.holdout": 0.1},
        )
        for n, (name, key) in enumerate(sizes.items(), 1)
    )
    assert one.title == "Other settings: 2 attentions on ListOps, steps and 3 shared"


def test_of_many_keys_a_heading_names_some():
    for several, shared, text in (
        ("", "ab", "a, b"),
        ("", "abcd", "a, b and 2 more"),
        ("b", "a", "b, a"),
        ("abcd", "", "a, b, c, d"),
        ("abcde", "fg", "a, b, c, d, 1 more and 2 shared"),
    ):
        assert named_keys(list(several), list(shared)) == text


def test_keys_that_end_alike_are_named_in_full():
    both = {"model.dropout": 0.1, "model.attention.dropout": 0.2, "train.steps": 9}
    (one,) = group([make_row(attention="standard", config_overrides=both)])
    assert one.title == (
        "Other settings: Standard on ListOps, model.attention.dropout, model.dropout and 1 more"
    )


def test_lines_have_the_short_names_of_titles():
    both = [{"model.dropout": p, "model.attention.dropout": 0.2, "train.steps": 9} for p in (0, 1)]
    (one,) = group([make_row(attention="standard", config_overrides=each) for each in both])
    assert [line.title for line in one.lines] == [
        f"Standard, model.dropout={p}, model.attention.dropout=0.2" for p in (0, 1)
    ]
    (one,) = group(grid_rows((1e-4, 2e-4, 3e-4), (0.1,)))
    assert [line.title for line in one.lines] == [
        f"Nyströmformer, learning_rate={rate}" for rate in (1e-4, 2e-4, 3e-4)
    ]
    (figure,) = figures_of(one)
    assert "against learning_rate;" in figure.caption
    assert figure.name == f"{one.slug}-nystrom-learning_rate"


def test_tasks_of_ones_own_have_a_table_of_their_own():
    own = [make_row(0.7, task="parity", attention=name) for name in ("standard", "nystrom")]
    table, others = group([make_row(0.5), *own])
    assert table.tasks == TABLE_TASKS
    assert (others.title, others.tasks) == (
        "Tasks beside LRA's: defaults of their configs",
        ("parity",),
    )
    assert [line.attention for line in others.lines] == ["standard", "nystrom"]
    assert not any("Table 3" in note for note in tables(others)[0].notes)
    assert [one.slug for one in group(own)] == ["own-tasks"]


def test_lra_data_come_before_others_in_the_table():
    rows = [make_row(0.3, data="differs (2 / 2 / 2)", seed=s) for s in (0, 1)] + [make_row(0.5)]
    groups = group(rows)
    assert "50.00 (1)" in plain(tables(groups[0])[0])
    assert groups[1].setting == "The protocol of Table 3. Data: differs (2 / 2 / 2)."
    assert "These are not LRA numbers" in plain(tables(groups[1])[0])


def test_failures_do_not_keep_results_on_other_data_out_of_the_table():
    rows = [
        failed_row(task="retrieval", data="official"),
        *(failed_row(task="retrieval", seed=seed, data="worse") for seed in (0, 1)),
        make_row(0.8, task="retrieval", data="reconstructed"),
    ]
    assert "80.00 (1)†" in plain(tables(group(rows)[0])[0])
    assert "failed (0 of 1 seeds)" in plain(tables(group(rows[:1])[0])[0])


def test_seeds_among_overrides_do_not_tell_cells_apart():
    rows = [make_row(0.3 + seed, seed=seed) for seed in (0, 1)]
    rows[1] = dataclasses.replace(rows[1], test_accuracy=0.5, config_overrides={"seeds": [1]})
    assert "40.00 ± 14.14 (2)" in plain(tables(group(rows)[0])[0])


def test_sweeps_have_the_value_of_the_table():
    options = [{"model.attention.num_landmarks": n} for n in (16, 128)]
    rows = [make_row(data="reconstructed", config_overrides=changed) for changed in [{}, *options]]
    titles = [text.title for text in group(rows)[1].lines]
    assert titles == [f"Nyströmformer, num_landmarks={n}" for n in (16, 64, 128)]

    default = CONFIG | {"train.learning_rate": 1e-4}
    rows = [make_row(config=default), make_row(config=default, attention="linformer")]
    rows += [make_row(config_overrides={"train.learning_rate": rate}) for rate in (5e-5, 2e-4)]
    groups = group(rows)
    assert [text.title for text in groups[1].lines] == [
        f"Nyströmformer, learning_rate={rate}" for rate in (5e-5, 1e-4, 2e-4)
    ]
    assert groups[1].setting.startswith(
        "Changed from the protocol of Table 3: train.learning_rate."
    )
    # One value is another protocol, no sweep.
    assert len(group(rows[:3])[1].lines) == 1
    # Of two keys the table is no point on a curve.
    both = [{"train.learning_rate": r, "train.steps": s} for r, s in ((5e-5, 9), (2e-4, 8))]
    rows = [make_row(config=default), *(make_row(config_overrides=changed) for changed in both)]
    assert len(group(rows)[1].lines) == 2


def test_a_sweep_of_shorter_runs_has_the_value_of_its_default():
    """With the other keys and options of the sweep."""
    short, options = {"train.steps": 9}, {"model.attention.num_landmarks": 16}
    default = CONFIG | {"train.learning_rate": 1e-4}
    rates = [short | {"train.learning_rate": rate} for rate in (5e-5, 2e-4)]
    changed = [short, *rates, {"train.steps": 8}, short | options]
    rows = [make_row(config=default | each, config_overrides=each) for each in changed]
    rows.append(make_row(config=default | short, config_overrides=short, attention="linformer"))
    (sweep,) = (one for one in group(rows) if "learning_rate" in one.setting)
    assert [text.title for text in sweep.lines] == [
        f"Nyströmformer, learning_rate={rate}" for rate in (5e-5, 1e-4, 2e-4)
    ]


SHORT = {"train.steps": 9}
DEFAULTS = CONFIG | {"train.learning_rate": 1e-4, "model.dropout": 0.1}


def grid_rows(rates, dropouts, shared=SHORT, **values):
    """Rows of a grid, which list values only where they are not the defaults."""
    settings = [
        {"train.learning_rate": rate, "model.dropout": dropout}
        for rate in rates
        for dropout in dropouts
    ]
    changed = [
        shared | {key: value for key, value in each.items() if value != DEFAULTS[key]}
        for each in settings
    ]
    return [make_row(config=DEFAULTS | each, config_overrides=each, **values) for each in changed]


@pytest.mark.parametrize(
    ("rates", "dropouts"),
    [
        ((1e-3, 3e-3), (0.0, 0.1)),
        ((1e-4, 1e-3), (0.0, 0.1)),
        ((1e-4, 1e-3, 3e-3), (0.0, 0.1, 0.2)),
        ((1e-4,), (0.0, 0.1)),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_grid_is_one_table_whichever_of_its_values_are_defaults(rates, dropouts, order):
    (one,) = group(grid_rows(rates, dropouts)[::order])
    assert len(one.lines) == len(rates) * len(dropouts)
    assert "train.steps=9" in one.setting
    assert "model.dropout=" not in one.setting
    assert len({line.title for line in one.lines}) == len(one.lines)
    # So it is on data that nothing else is on, with no key that all rows change.
    mine = grid_rows(rates, dropouts, shared={}, data="mine")
    _, one = group([make_row(0.5), *mine[::order]])
    assert len(one.lines) == len(mine)


def test_a_grid_in_progress_is_one_table():
    rows = grid_rows((1e-3, 3e-3), (0.0, 0.1)) + grid_rows((1e-2,), (0.1,))
    assert [len(one.lines) for one in group(rows)] == [5]


def test_a_grid_around_the_table_leaves_it_its_rows():
    table, grid = group(grid_rows((1e-4, 1e-3), (0.0, 0.1), shared={}))
    assert table.is_table3
    assert [len(table.all_cells()), len(grid.lines)] == [1, 4]
    # With an option, the rows at the defaults are of the sweep of options too.
    smaller = {"model.attention.num_landmarks": 8}
    (one,) = group(grid_rows((1e-4,), (0.0, 0.1), shared=smaller))
    assert len(one.lines) == 2
    rows = [*grid_rows((1e-4,), (0.0, 0.1), shared=smaller), make_row(config=DEFAULTS)]
    assert [len(one.lines) for one in group(rows)[1:]] == [2, 2]


def test_each_ablation_has_the_line_that_all_share():
    rows = grid_rows((1e-3,), (0.1,)) + grid_rows((1e-4,), (0.0, 0.1))
    assert [len(one.lines) for one in group(rows)] == [2, 2]


def test_a_comparison_keeps_the_lines_that_a_grid_has_too():
    rows = grid_rows((1e-4, 1e-3), (0.1,)) + grid_rows((1e-4,), (0.1,), attention="linformer")
    assert [len(one.lines) for one in group(rows)] == [2, 2]


def test_rows_that_tell_no_configuration_have_its_defaults():
    rows = [
        make_row(config={}),
        make_row(config_overrides={"model.attention.num_landmarks": 16}),
    ]
    titles = [text.title for text in group(rows)[1].lines]
    assert titles == [f"Nyströmformer, num_landmarks={n}" for n in (16, 64)]


def test_a_sweep_is_one_table_by_value():
    rows = [make_row(0.5)] + [
        make_row(0.4, config_overrides={"model.attention.num_landmarks": n}) for n in (128, 16)
    ]
    titles = [text.title for text in group(rows)[1].lines]
    assert titles == [f"Nyströmformer, num_landmarks={n}" for n in (16, 64, 128)]
    rows = [make_row(0.4, config_overrides={"train.weight_decay": d}) for d in (0.2, 0.11, 0.1)]
    assert [text.title for text in group(rows)[0].lines] == [
        f"Nyströmformer, weight_decay={d}" for d in (0.1, 0.11, 0.2)
    ]


def test_one_task_is_ranked():
    overrides = {"train.steps": 500}
    data = "differs (lengths 16 to 64)"
    rows = [
        make_row(accuracy, attention=attention, config_overrides=overrides, data=data)
        for attention, accuracy in (("standard", 0.3), ("nystrom", 0.5), ("linformer", 0.4))
    ]
    table = tables(group(rows)[0])[0]
    assert [cells[0] for cells in table.lines] == ["Nyströmformer", "Linformer", "Standard"]


def test_what_chance_gives_is_said_of_our_generators_data_only():
    for task, data, said in (
        ("listops", "generated", "17.0 %"),
        ("listops", "differs (lengths 16 to 63, 20,000 / 1,000 / 1,000)", "lra.data.inspect"),
        ("listops", "differs (2 / 2 / 2 examples)", None),
        ("listops", "mine", None),
        ("pathfinder", "generated", None),
    ):
        (table, *_) = tables(group([make_row(task=task, data=data)])[0])
        found = [note for note in table.notes if "frequent" in note]
        assert [said in note for note in found] == [True] * bool(said)


def test_lines_of_a_sweep_that_are_of_table_3_are_named():
    rows = [
        make_row(0.4),
        make_row(0.3, config_overrides={"model.attention.num_landmarks": 32}),
        make_row(0.3, task="image", config_overrides={"model.attention.num_landmarks": 32}),
        make_row(0.3, attention="linformer", config_overrides={"model.attention.proj_dim": 32}),
    ]
    _, sweep = group(rows)
    (note,) = [note for note in tables(sweep)[0].notes if "Table 3" in note]
    assert note == (
        "Not comparable with Table 3: the protocol is another, except that of "
        "Nyströmformer, num_landmarks=64."
    )
    _, without = group([make_row(0.4, config_overrides={"train.steps": 10}), make_row(0.5)])
    assert "Not comparable with Table 3: the protocol is another." in tables(without)[0].notes


@pytest.mark.parametrize("order", [1, -1])
def test_a_failure_that_names_no_data_joins_one_that_does(order):
    rows = [failed_row(), failed_row(seed=1, data_sha256=64 * "a")]
    assert [len(cell.rows) for cell in divide_into_cells(rows[::order])] == [2]


def on_off_rows(number):
    """Rows of all combinations of keys that are on or off, where off is the default."""
    keys = [f"train.key{i}" for i in range(number)]
    choices = itertools.product((0, 1), repeat=number)
    settings = [dict(zip(keys, chosen, strict=True)) for chosen in choices]
    return [
        make_row(
            config=DEFAULTS | SHORT | each,
            config_overrides=SHORT | {key: on for key, on in each.items() if on},
        )
        for each in settings
    ]


def test_only_grids_over_a_few_keys_are_united():
    """Sections of a search in many keys would repeat each other's rows many times."""
    assert [len(one.lines) for one in group(on_off_rows(4))] == [2**4]
    assert [len(one.lines) for one in group(on_off_rows(5))] == [1] * 2**5


def test_sizes_of_the_same_name_do_not_vary_between_attentions():
    shared = {"data.holdout": 0.1}
    (one,) = group(
        make_row(
            attention=name,
            config_overrides=shared | {"model.attention.size": size, "train.steps": steps},
        )
        for steps, (name, size) in enumerate((("nystrom", 8), ("linformer", 16)), 1)
    )
    assert one.title == "Other settings: 2 attentions on ListOps, steps and 2 shared"
