"""Tables against what they should say, from rows written by hand."""

import dataclasses
import math
import re

import pytest

from lra import efficiency
from lra.errors import UserError
from lra.published import TABLE3, TABLE_TASKS
from lra.report.__main__ import main
from lra.report.cells import differences, divide_into_cells, stat
from lra.report.cost_table import number
from lra.report.formats import document, plain
from lra.report.groups import group
from lra.report.notes import summary
from lra.report.page import page
from lra.report.tables import tables
from lra.row import to_json
from tests.lra.cost_row_factory import cost_row
from tests.lra.row_factory import HALF, diverged_row, failed_row, make_row

TITLE = "Test accuracy"


def first(rows) -> str:
    """The first table of the first group."""
    return plain(tables(group(rows)[0])[0])


def line(rows, attention="Nyströmformer") -> str:
    """The line of an attention in the first table."""
    return next(text for text in first(rows).splitlines() if text.startswith(f"| {attention}"))


def five(attention: str, accuracy: float, **values) -> list:
    return [make_row(accuracy, attention=attention, task=task, **values) for task in TABLE_TASKS]


def test_the_table():
    rows = [
        *(make_row(0.371 + s / 200, attention="standard", seed=s) for s in (0, 1, 2)),
        make_row(0.6, attention="standard", task="text", val_is_test=True),
        make_row(0.8, attention="standard", task="retrieval", data="reconstructed"),
        make_row(0.1, attention="performer", seed=0),
        diverged_row(attention="performer", seed=1),
        diverged_row(attention="reformer", seed=0),
        failed_row(attention="linformer", seed=0),
    ]
    for task in TABLE_TASKS:
        data = "reconstructed" if task == "retrieval" else "generated"
        rows += [make_row(0.5 + s / 100, task=task, seed=s, data=data) for s in (0, 1)]
    assert first(rows) == (
        """\
| Attention     |                 ListOps |             Text |         Retrieval |            Image |       Pathfinder |           Average |
| ------------- | ----------------------: | ---------------: | ----------------: | ---------------: | ---------------: | ----------------: |
| Standard      |        37.60 ± 0.50 (3) |        60.00 (1) |        80.00 (1)† |                – |                – |                 – |
| Reformer      | diverged (0 of 1 seeds) |                – |                 – |                – |                – |                 – |
| Linformer     |   failed (0 of 1 seeds) |                – |                 – |                – |                – |                 – |
| Performer     |    10.00 (1 of 2 seeds) |                – |                 – |                – |                – |                 – |
| Nyströmformer |        50.50 ± 0.71 (2) | 50.50 ± 0.71 (2) | 50.50 ± 0.71 (2)† | 50.50 ± 0.71 (2) | 50.50 ± 0.71 (2) | 50.50 ± 0.32 (2)† |

† Retrieval on other data: reconstructed.

ListOps: as many examples as LRA has, drawn here from its distribution, not the released ones.

Pathfinder: as many examples as LRA has, drawn here by the generator's published parameters (LRA's intensities and number of distractors are inferred), not the released ones.

n of m seeds: the others diverged or failed and are in no mean.

Text: validation = test, as LRA has it: the parameters were chosen on the test set.

ListOps: the most frequent class is right in 17.0 %, the best guess from the root operator alone in 36.1 % of cases; in a test set of 2,000 these vary by about a point.

Average: ± is sqrt(s1^2 + ... + s5^2) / 5 of the five cells' standard deviations, that of an average over single runs; none where a cell has one seed.
"""  # noqa: E501
    )


def test_only_what_lra_has_is_generated_anew():
    """A task of one's own has no released examples."""
    generated = [make_row(0.5, task=task) for task in ("listops", "pathx", "text", "mine")]
    told = re.findall(r"\n(\S+): as many examples as LRA has", first(generated))
    assert told == ["ListOps", "Path-X"]
    assert "drawn here" not in first(generated[2:])


def test_published_numbers_and_differences():
    rows = [*five("standard", 0.6), make_row(0.372)]
    published = plain(tables(group(rows)[0])[1])
    assert "| Standard      | 37.10 (+22.90) | 65.02 (-5.02) |" in published
    assert "| Nyströmformer |  37.15 (+0.05) |         65.52 |" in published
    assert "58.77 (+1.23)" in published


def test_no_difference_is_below_zero_by_rounding_alone():
    rows = [make_row(accuracy, seed=s) for s, accuracy in enumerate((0.37149, 0.37149))]
    assert "| Nyströmformer | 37.15 (+0.00) |" in plain(tables(group(rows)[0])[1])


def test_published_averages_are_those_of_the_paper():
    averages = {name: sum(values.values()) / 5 for name, values in TABLE3.items()}
    printed = {
        "standard": 58.77,
        "reformer": 55.04,
        "linformer": 55.59,
        "performer": 53.63,
        "nystrom": 58.95,
    }
    assert averages == pytest.approx(printed, abs=0.006)


def test_sample_standard_deviation():
    assert stat([1.0, None, 3.0]) == pytest.approx((2.0, math.sqrt(2), 2))
    assert stat([1.0]) == (1.0, None, 1)
    assert stat([None]) is None


def test_the_second_table_is_without_selection():
    table = tables(group([make_row(0.5)])[0])[3]
    assert table.title == "Test accuracy without selection"
    assert "49.00 (1)" in plain(table)


def validation(rows):
    """The table of validation accuracies, if there is one."""
    found = [each for each in tables(group(rows)[0]) if each.title.startswith("Validation")]
    return found[0] if found else None


def test_settings_are_chosen_by_validation_accuracies():
    """Which choose another line than the test accuracies do, and none that lost a seed."""
    accuracies = {8: (0.2, 0.9), 16: (0.5, 0.3), 32: (0.4, 0.45), 64: (0.3, 0.2)}
    rows = [
        make_row(
            test,
            val_accuracy=val,
            seed=seed,
            config_overrides={"train.steps": n},
            task=task,
            **also,
        )
        for n, (test, val) in accuracies.items()
        for seed in (0, 1)
        for task, also in (("image", {}), ("text", {"val_is_test": True}))
    ]
    rows += [
        diverged_row(task="image", seed=2, config_overrides={"train.steps": 8}),
        make_row(0.9, task="image", attention="linformer", config_overrides={"train.steps": 9}),
    ]
    table = validation(rows)
    assert table.folded
    assert "Choose settings by this table, not by the test accuracies" in table.caption
    assert [line[0] for line in table.lines] == [
        "Linformer, steps=9",
        *(f"Nyströmformer, steps={n}" for n in accuracies),
    ]
    assert re.findall(r"\*\*.*?\*\*", plain(table)) == ["**45.00 ± 0.00 (2)**"]
    assert "90.00 ± 0.00 (2 of 3 seeds)" in plain(table)
    assert "Text: validation = test" in plain(table)
    assert "in bold" in table.caption
    on_test = validation(row for row in rows if row.task == "text")
    assert not on_test.bold
    assert "Choose" not in on_test.caption


def test_nothing_is_best_beside_several_cells_in_one_place():
    rows = [
        make_row(val_accuracy=val, config_overrides={"train.steps": n})
        for n, val in ((8, 0.3), (16, 0.4))
    ]
    assert validation(rows).bold
    several = make_row(val_accuracy=0.5, seed=1, steps=7, config_overrides={"train.steps": 8})
    assert not validation([*rows, several]).bold


def test_nothing_is_best_among_lines_of_different_seeds():
    rows = [
        make_row(val_accuracy=val, seed=seed, config_overrides={"train.steps": n})
        for n, val, seed in ((8, 0.3, 0), (16, 0.4, 0), (16, 0.1, 1))
    ]
    assert not validation(rows).bold
    assert validation(rows[:2]).bold == {(1, 1)}


def test_one_line_of_an_attention_is_no_choice():
    rows = [
        make_row(0.5, attention=name, config_overrides={"train.steps": 9})
        for name in ("linformer", "nystrom")
    ]
    table = validation(rows)
    assert not table.bold
    assert "bold" not in table.caption
    assert "Choose" not in table.caption
    assert "| 51.00 (1) |" in plain(table)
    assert "Choose" not in validation(rows[:1]).caption
    assert validation([make_row(0.5)]) is None
    assert validation([failed_row(config_overrides={"train.steps": 9})]) is None


def test_seeds_trained_for_different_steps_are_shown_apart():
    rows = [make_row(0.5), make_row(0.5, seed=1), make_row(0.3, seed=2, steps=2500)]
    assert "50.00 ± 0.00 (2) [5,000 steps] / 30.00 (1) [2,500 steps]" in line(rows)


def test_other_data_under_the_same_mark_are_shown_apart():
    rows = [make_row(0.5, data_sha256="a" * 64), make_row(0.4, seed=1, data_sha256="b" * 64)]
    rows.append(failed_row(seed=2))
    assert "50.00 (1 of 2 seeds) [data aaaaaaaa] / 40.00 (1) [data bbbbbbbb]" in line(rows)
    rows = [make_row(0.5, data="official"), make_row(0.4)]
    assert "50.00 (1) [data=official] / 40.00 (1) [data=generated]" in line(rows)


def test_a_number_format_among_the_overrides_or_not_is_the_same_cell():
    rows = [make_row(0.5, **HALF), make_row(0.3, seed=1, dtype="bfloat16")]
    assert "| 40.00 ± 14.14 (2) |" in line(rows)
    # A seed of both spellings counts once: its first result.
    again = [failed_row(dtype="bfloat16"), *rows, make_row(0.1, dtype="bfloat16")]
    assert "| 40.00 ± 14.14 (2) |" in line(again)


def test_cells_that_only_spell_their_changes_otherwise_are_told_apart():
    steps = {"train.steps": 9000}
    rows = [make_row(0.5, config_overrides=steps), make_row(0.4, seed=1, config=steps)]
    assert line(rows).endswith(" 50.00 (1) [changed: train.steps=9000] / 40.00 (1) [table3] |")
    rows[1] = make_row(0.4, config_overrides=steps | {"mesh.data": 2}, protocol=rows[0].protocol)
    assert differences(divide_into_cells(rows)) == [
        '{"train.steps": 9000}',
        '{"mesh.data": 2, "train.steps": 9000}',
    ]


def test_no_difference_is_made_to_other_data():
    rows = five("nystrom", 0.5, data="mine")
    published = plain(tables(group(rows)[0])[1])
    assert "37.15† " in published
    assert "58.95† |" in published
    assert "† No difference: our data are not LRA's." in published


def test_words_are_set_to_the_left_whatever_they_begin_with():
    rows = [make_row(device="4090", commit="5555555", peak_memory_mb=None), failed_row(seed=1)]
    found = {table.title: table for table in tables(group(rows)[0])}
    words = {"Task", "Attention", "Device", "JAX", "Commit", "What happened"}
    for table in found.values():
        left = dict(zip(table.header, table.text_columns(), strict=True))
        assert {title for title in left if left[title]} == words.intersection(table.header)
    # A column without numbers is one of numbers.
    assert "|    – |" in plain(found["Test accuracy"])


def test_unknown_attentions_and_tasks_are_shown_too():
    text = first([make_row(0.5, attention="mine", task="pathx")])
    assert " Path-X |" in text
    own = first([make_row(0.5, attention="mine", task="unknown-task")])
    assert "unknown-task" in own
    assert "| mine " in text


def test_costs_name_the_code_of_every_program():
    old, new = "a" * 40, "b" * 40
    commits = (old, new, f"{old}-dirty", f"{old}, {new}")
    rows = [make_row(0.5, seed=seed, commit=commit) for seed, commit in enumerate(commits)]
    table = next(table for table in tables(group(rows)[0]) if table.title == "Cost")
    found = [line[table.header.index("Commit")] for line in table.lines]
    assert found == ["aaaaaaa", "bbbbbbb", "aaaaaaa-dirty", "aaaaaaa + bbbbbbb"]


def test_costs():
    rows = [
        make_row(0.5, seed=s, seeds_in_program=n, wall_seconds=60.0 * n)
        for s, n in ((0, 3), (1, 3), (2, 1))
    ]
    table = tables(group(rows)[0])[4]
    common = ["ListOps", "Nyströmformer", "207,000", "1,000"]
    assert table.lines == [
        [*common, "3.0", "512", "3", "a device, float32", "unknown", "unknown"],
        [*common, "1.0", "512", "1", "a device, float32", "unknown", "unknown"],
    ]


def test_costs_with_another_jax_stand_apart():
    of_seed = ("0.10.2", "0.12.0", "0.12.0", "0.10.2, 0.12.0")
    rows = [make_row(0.5, seed=s, versions={"jax": told}) for s, told in enumerate(of_seed)]
    table = tables(group(rows)[0])[4]
    column = table.header.index("JAX")
    assert [line[column] for line in table.lines] == ["0.10.2", "0.12.0", "0.10.2 + 0.12.0"]


def test_costs_in_other_number_formats_stand_apart():
    half = {"matmul_precision": "tensorfloat32", "seeds_in_program": 3}
    other, table = tables(group([make_row(0.5), make_row(0.5, seed=1, **half)])[0])[4:6]
    assert other.title == "Other number formats"
    column = table.header.index("Device")
    assert [line[column] for line in table.lines] == [
        "a device, float32",
        "a device, tensorfloat32 products",
    ]


def test_costs_on_other_data_are_marked_in_the_papers_table():
    """Shorter data make a run faster, more so its evaluations."""
    rows = [make_row(0.5), make_row(0.5, task="retrieval", data="reconstructed")]
    table = tables(group(rows)[0])[4]
    assert [line[0] for line in table.lines] == ["ListOps", "Retrieval†"]
    assert table.notes == ["† Retrieval on other data: reconstructed."]
    assert tables(group(rows[:1])[0])[4].notes == []
    (apart,) = group([make_row(0.5, data="mine", config_overrides={"train.steps": 9})])
    (cost,) = (table for table in tables(apart) if table.title == "Cost")
    assert [line[0] for line in cost.lines] == ["ListOps"]


def test_seeds_without_result_are_told():
    rows = [make_row(0.5), failed_row("out of memory", seed=1), diverged_row(12_345, seed=2)]
    assert tables(group(rows)[0])[5].lines == [
        ["ListOps", "Nyströmformer", "1", "out of memory"],
        ["ListOps", "Nyströmformer", "2", "diverged at step 12,345"],
    ]


def test_a_failure_without_a_reason_is_no_divergence():
    assert [line[3] for line in tables(group([failed_row("")])[0])[-1].lines] == [""]


def test_numbers():
    assert [number(v) for v in (None, 3, 3.14159, 12.6, 12345)] == ["–", "3", "3.1", "13", "12,345"]


def test_a_diverged_seed_is_counted_with_those_on_its_data():
    large, small = {"data_sha256": 64 * "a"}, {"data_sha256": 64 * "b"}
    rows = [make_row(seed=seed, **large) for seed in range(3)]
    rows += [make_row(seed=3, **small), diverged_row(seed=4, **small), failed_row(seed=5)]
    found = [[row.seed for row in cell.rows] for cell in divide_into_cells(rows)]
    assert found == [[0, 1, 2, 5], [3, 4]]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("known", "name"), [("a" * 64, "aaaaaaaa"), (None, "unknown")])
def test_a_diverged_seed_on_data_of_its_own_is_shown_apart(known, name, seed):
    rows = [make_row(data_sha256=known), diverged_row(seed=seed, data_sha256="b" * 64)]
    apart = (
        f"50.00 (1) [5,000 steps, data {name}] / diverged (0 of 1 seeds) [7 steps, data bbbbbbbb]"
    )
    rows[1] = dataclasses.replace(rows[1], steps=7)
    assert f"| {apart} |" in line(rows)
    # Failed seeds that name no data are counted with the results, whatever the order of the rows.
    rows += [failed_row(seed=2), failed_row(seed=3, data_sha256="b" * 64)]
    for mixed in (rows, rows[::-1]):
        found = [[row.seed for row in cell.rows] for cell in divide_into_cells(mixed)]
        assert found == [[0, 2], [seed, 3]]


def test_a_place_with_several_cells_has_no_difference_and_says_so():
    rows = [make_row(0.3), make_row(0.4, seed=1, steps=10)]
    table = tables(group(rows)[0])[1]
    assert table.lines[4][1] == "37.15"
    assert "No difference where several cells stand in one place." in table.notes
    assert not any("several cells" in note for note in tables(group(rows[:1])[0])[1].notes)


def test_costs_of_several_programs_are_from_the_least_to_the_most():
    rows = [
        make_row(seed=seed, examples_per_second=speed, wall_seconds=seconds, seeds_in_program=1)
        for seed, speed, seconds in ((0, 60.0, 600.0), (1, 30.0, 1260.0))
    ]
    (line,) = tables(group(rows)[0])[4].lines
    assert line[2:7] == ["207,000", "30 to 60", "10.0 to 21.0", "512", "1"]


def test_bad_input_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match="no such file"):
        main([str(path)])
    path.write_text("")
    with pytest.raises(UserError, match="no rows in"):
        main([str(path)])
    path.write_text(to_json(make_row()) + "\n")
    with pytest.raises(UserError, match="did you mean 'latex'"):
        main([str(path), "--format=md,late"])
    (tmp_path / "costs.jsonl").write_text(efficiency.to_json(cost_row()) + "\n")
    with pytest.raises(UserError, match="make two CSV files: say --out=DIR"):
        main([str(path), str(tmp_path / "costs.jsonl"), "--format=csv"])
    with pytest.raises(UserError, match="--curves names no folder"):
        main([str(path), "--curves", str(tmp_path)])


def test_a_summary_comes_first():
    rows = [make_row(0.5), make_row(0.5, seed=1), make_row(attention="longformer")]
    rows += [make_row(task="image", data="mine", num_devices=2), diverged_row(task="text")]
    told = (
        "Cells of Table 3 with results: 2 of 25, of 1 to 2 seeds each. Data: generated (ListOps); "
        "mine (Image). Devices: a device, float32; 2 x a device, float32."
    )
    assert summary(group(rows)) == told
    assert "1 of 25, of 1 seed each. " in summary(group(rows[:1]))
    assert "1 of 25, of 1 seed each. " in summary(group([make_row(), diverged_row(seed=1)]))
    apart = [make_row(), *(make_row(data="official", seed=seed) for seed in (0, 1))]
    assert "1 of 25, of 2 seeds each. " in summary(group(apart))
    assert summary(group(rows[-1:])) == "Cells of Table 3 with results: 0 of 25."
    assert summary(group([make_row(config_overrides={"train.steps": 9})])) == ""
    assert document([], "rows.jsonl", told).startswith(f"# Results\n\n{told}\n\nRendered by")
    assert f"<h1>Results</h1><p>{told}</p>" in page([], "rows.jsonl", told)


def test_sources_say_how_the_published_numbers_were_made():
    _, published, reruns, *_ = tables(group([make_row()])[0])
    assert any("on data without brackets (inferred" in note for note in published.notes)
    assert "Performer's features redrawn" in reruns.notes[0]


def test_of_two_rows_of_a_seed_the_result_counts():
    for rows in ([failed_row(), diverged_row()], [diverged_row(), failed_row()]):
        (cell,) = divide_into_cells(rows)
        assert [row.status for row in cell.rows] == ["diverged"]


def test_a_group_without_a_finished_run_has_no_table_of_costs():
    titles = [table.title for table in tables(group([failed_row()])[0])]
    assert "Cost" not in titles
    assert "Seeds without a result" in titles
