"""Pages written by hand: accuracies are those of the rows, links lead somewhere."""

import pathlib
import re
import statistics

import pytest

from lra import records
from lra.published import TABLE3, TASKS
from lra.row import Row

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "results").glob("*.md"))),
)
NAMES = {
    "standard": "Standard",
    "reformer": "Reformer",
    "linformer": "Linformer",
    "performer": "Performer",
    "nystrom": "Nyströmformer",
}


def of_table(attention: str, task: str) -> list[Row]:
    """The committed results of a cell of the table, by seed."""
    rows = records.latest(records.read(ROOT / "results" / "accuracy.jsonl"))
    own = [row for row in rows if (row.task, row.attention) == (task, attention)]
    assert all(row.protocol == "table3" and row.status == "ok" for row in own)
    return sorted(own, key=lambda row: row.seed)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"


def cell(attention: str, task: str) -> str:
    """`36.60 ± 1.41 (2) / 37.15`: ours, its spread over seeds and their number, published."""
    found = [row.test_accuracy for row in of_table(attention, task)]
    spread = f" ± {percent(statistics.stdev(found))}" if len(found) > 1 else ""
    ours = f"{percent(statistics.mean(found))}{spread} ({len(found)})" if found else "–"
    return f"{ours} / {TABLE3[attention][task]:.2f}"


def assert_has_line(page: str, line: str) -> None:
    assert line in (ROOT / page).read_text().splitlines(), f"{page} needs this line:\n{line}"


@pytest.mark.parametrize("attention", NAMES)
def test_the_table_of_the_readme_is_that_of_the_rows(attention):
    cells = [NAMES[attention], *(cell(attention, task) for task in TASKS)]
    assert_has_line("README.md", f"| {' | '.join(cells)} |")


@pytest.mark.parametrize("attention", NAMES)
def test_the_seeds_of_listops_are_those_of_the_rows(attention):
    published = TABLE3[attention]["listops"]
    for row in of_table(attention, "listops"):
        best, last = percent(row.test_accuracy), percent(row.test_accuracy_last)
        line = f"| {NAMES[attention]} | {row.seed} | {best} | {last} | {published:.2f} |"
        assert_has_line("results/LISTOPS.md", line)


@pytest.mark.parametrize("attention", NAMES)
def test_the_seeds_of_text_are_those_of_the_rows(attention):
    published = TABLE3[attention]["text"]
    for row in of_table(attention, "text"):
        best, last = percent(row.test_accuracy), percent(row.test_accuracy_last)
        line = (
            f"| {NAMES[attention]} | {row.seed} | {best} | {row.best_step:,} | {last} "
            f"| {published:.2f} |"
        )
        assert_has_line("results/TEXT.md", line)


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
