"""Markdown and LaTeX show free text as it is."""

import re
import string

import pytest

from lra.report.figure_files import Figure
from lra.report.formats import document, latex, latex_of_all, plain
from lra.report.page import page
from lra.report.sections import Section
from lra.report.table import Table

# Names that users give, and what may stand in messages of errors.
FREE = [
    "<lambda>",
    "a <b>c</b> <!-- d -->",
    "a|b||c",
    "*co* **co** 2*3*4",
    "_y_ __y__ (_y_) a__b",
    "C:\\new\\_x\\*y\\|z\\",
    "`code` ``",
    "~gone~ ~~gone~~ a~",
    "&lt; &#60; AT&T;",
    "[x](y) [x][y]",
    "$a$ and $b$",
    "a ##",
]
# What needs no escape, and what the report writes itself.
PLAIN = [
    "num_features=64",
    "~1,000 (~3.61×)",
    "50.00 ± 0.00 (2) [bfloat16]",
    "> 7.00×, 3 < 4 & 5",
    "#1 of 'them'",
]


def shown(markdown: str) -> str:
    """What a reader of Markdown sees of inline text; an error where it would see markup."""
    text, at = "", 0
    while at < len(markdown):
        before, sign, after = text[-1:] or " ", markdown[at], markdown[at + 1 : at + 2] or " "
        if sign == "\\" and after in string.punctuation:
            text, at = text + after, at + 2
            continue
        assert sign not in "\\`*$|"
        assert sign != "_" or (before.isalnum() and after.isalnum())
        assert sign != "<" or not (after.isalpha() or after in "/!?")
        assert sign != "~" or before == " " or (before == "(" and after.isdigit())
        assert sign not in "([" or before != "]"
        assert not re.match(r"&#?\w+;", markdown[at:])
        text, at = text + sign, at + 1
    assert not markdown.endswith(" #")
    return text


def parts(text: str) -> dict[str, str]:
    """How a text stands in each place of a document that may hold free text."""
    table = Table(f"T {text}", f"C {text}", ["Name"], [[text]], [f"N {text}"])
    figure = Figure("name", f"F {text}", draw=None)
    section = Section(f"S {text}", [table], [figure], f"L {text}")
    lines = document([section, Section("Other", [], [])], f"R {text}").split("\n")
    found = {
        "source": next(line for line in lines if " from R" in line).partition(" from ")[2][2:-1],
        "contents": re.match(r"- \[S (.*)\]\(#[^()]*\)$", lines[4])[1],
        "cell": next(line for line in lines[::-1] if line.startswith("| "))[2:-2].rstrip(" "),
        "image": re.match(r".*!\[F (.*?)\]\(figures", "\n".join(lines), re.DOTALL)[1],
    }
    starts = {"section": "## S ", "title": "### T ", "caption": "C ", "note": "N ", "legend": "L "}
    for name, start in starts.items():
        found[name] = next(line for line in lines if line.startswith(start))[len(start) :]
    return found


@pytest.mark.parametrize("text", [*FREE, *PLAIN])
def test_free_text_is_shown_as_it_is_wherever_it_stands(text):
    found = {name: shown(part) for name, part in parts(text).items()}
    title = Figure("name", f"F {text}", draw=None).title
    assert "F " + found.pop("image") == title  # the first clause of its caption
    assert found == dict.fromkeys(found, text)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_markup_is_not_escaped(text):
    found = parts(text)
    assert {found[name] for name in found.keys() - {"contents", "image"}} == {text}


@pytest.mark.parametrize("sign", ["\n", "\r", "\0", "\x1b", "\u2028"])
def test_control_characters_are_spaces_in_every_format(sign):
    text = f"of two{sign}lines"
    table = Table(f"T {text}", "C", ["Name"], [[text]], [])
    sections = [Section(f"S {text}", [table], [])] * 2
    assert plain(table).splitlines()[2:] == ["| of two lines |"]
    for written in (document(sections, "r"), latex_of_all(sections), page(sections, "r")):
        assert written.count("of two lines") >= 6
        assert written.count("of two") == written.count("of two lines")
    assert "](#s-of-two-lines)\n" in document(sections, "r")


def test_brackets_do_not_end_a_link():
    assert parts("a]b [c")["contents"] == r"a\]b \[c"
    assert parts("a][b")["image"] == r"a\]\[b"


def test_sections_that_github_names_alike_have_links_of_their_own():
    titles = ("rate=0.1", "rate=01", "another", "rate=0.1")
    text = document([Section(title, [], []) for title in titles], "rows.jsonl")
    assert re.findall(r"\(#(.*)\)", text) == ["rate01", "rate01-1", "another", "rate01-2"]


def test_folded_tables_are_details_behind_the_figures():
    tables = [
        Table("Detail <1>", "A caption.", ["Name"], [["a|b"]], ["A note."], folded=True),
        Table("Sum", "Of it.", ["Name"], [["c"]], []),
    ]
    section = Section("S", tables, [Figure("drawn", "Drawn.", draw=None)], "How to read.")
    assert (
        document([section], "rows.jsonl").partition("## S")[2]
        == """

How to read.

### Sum

Of it.

| Name |
| ---- |
| c    |

![Drawn](figures/drawn.png)

Drawn.

<details><summary>Detail &lt;1&gt;</summary>

A caption.

| Name |
| ---- |
| a\\|b |

A note.

</details>
"""
    )
    html = page([section._replace(figures=[])], "rows.jsonl").partition("<h2 id='s0'>S</h2>\n")[2]
    assert html.startswith("<p>How to read.</p>\n<h3>Sum</h3><p class='caption'>Of it.</p>")
    folded = html.partition("<details>")[2].partition("</details>")[0]
    assert folded.startswith("<summary>Detail &lt;1&gt;</summary><p class='caption'>A caption.</p>")
    assert folded.endswith("</table></div><p class='note'>A note.</p>")
    assert html.count("<h3>") == html.count("<details>") == 1


def test_without_folded_tables_the_figures_stand_behind_the_first():
    tables = [Table(title, "", ["Name"], [], []) for title in "abc"]
    assert Section("S", tables, []).around_figures == (tables[:1], tables[1:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("19.05 (-0.30)", "19.05 ($-$0.30)"),
        ("-2, 1e-05 and 2026-01-02", "$-$2, 1e$-$05 and 2026-01-02"),
        ("Nyströmformer-64", r"Nystr\"omformer-64"),
        ("(--fill_seconds)", r"(-{}-fill\_seconds)"),
        ("the table 'Other number formats'.", "the table `Other number formats'."),
        ("""LRA's "own" one""", "LRA's ``own'' one"),
        ("a|b", r"a\textbar{}b"),
        ("`x`", r"\textasciigrave{}x\textasciigrave{}"),
        ("37.10▼ 0.5▲", r"37.10$\blacktriangledown$ 0.5$\blacktriangle$"),
        ("–", "--"),
        (r"\d #1 $x {y} < ± > ‡", r"\textbackslash{}d \#1 \$x \{y\} $<$ $\pm$ $>$ $^\ddagger$"),
        ("100 % mine & yours_1", r"100 \% mine \& yours\_1"),
        (
            "~2^31 (~1.00×)†",
            r"\textasciitilde{}2\textasciicircum{}31 "
            r"(\textasciitilde{}1.00$\times$)$^\dagger$",
        ),
    ],
)
def test_latex_sets_signs_as_they_are_meant(text, expected):
    lines = latex(Table("T", "C", ["Name"], [[text]], [text])).splitlines()
    assert rf"{expected} \\" in lines
    assert rf"\caption{{T. C {expected}}}" in lines


def test_a_latex_table_is_no_wider_than_the_text_and_apart_from_its_caption():
    assert (
        latex(Table("T", "C", ["Name", "n"], [["a", "1"]], []))
        == r"""\begin{table}
\centering
\caption{T. C}
\vspace{1ex}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{lr}
\toprule
Name & n \\
\midrule
a & 1 \\
\bottomrule
\end{tabular}}
\end{table}
"""
    )


@pytest.mark.parametrize("text", ["[a]", "*a", " [a]"])
def test_a_latex_line_does_not_begin_with_what_the_one_before_would_take(text):
    lines = latex(Table("T", "C", [text], [[text]], [])).splitlines()
    assert lines.count(rf"{{}}{text} \\") == 2


def test_latex_never_has_more_tables_waiting_than_it_holds():
    sections = [
        Section("S", [Table("T", "C", ["Name"], [["a"]], [])] * number, [])
        for number in (2, 0, 16, 1)
    ]
    pages = latex_of_all(sections).split("\n\n\\clearpage\n\n")
    assert [page.count(r"\begin{table}") for page in pages] == [2, 15, 1, 1]
    assert "clearpage" not in latex_of_all(sections[:1])


def test_latex_of_several_sections_has_their_headings_and_legends():
    section = Section("100 % a", [Table("T", "C", ["Name"], [["a"]], [])], [], "What § marks.")
    assert latex_of_all([section]).startswith("\\begin{table}")
    text = latex_of_all([section, section._replace(title="b", legend="")])
    assert text.startswith("\\section*{100 \\% a}\n\nWhat \\S{} marks.\n\n\\begin{table}")
    assert "\n\\clearpage\n\n\\section*{b}\n\n\\begin{table}" in text


def test_on_paper_tables_are_not_cut_off():
    printed = page([], "rows.jsonl").partition("@media print {")[2]
    assert ".scroll { overflow: visible; margin-right: 0; } table { font-size: .7rem; }" in printed


def test_document_names_its_figures():
    figure = Figure("table3-speed", "ListOps: what is fast, by 1.5. More of it.", draw=None)
    text = document([Section("A section", [], [figure])], "rows.jsonl")
    assert text.startswith("# Results\n\nRendered by")
    assert "## A section\n" in text
    # Readers that hear the picture's text hear the caption next.
    assert "![ListOps: what is fast](figures/table3-speed.png)\n\n" in text
    assert text.count("ListOps: what is fast, by 1.5. More of it.\n") == 1
    assert "](#" not in text


def test_several_sections_have_a_list_of_contents():
    sections = [Section("Cost: d = 64, float32", [], []), Section("Learning curves", [], [])]
    text = document(sections, "rows.jsonl")
    assert "- [Cost: d = 64, float32](#cost-d--64-float32)\n" in text
    assert "- [Learning curves](#learning-curves)\n\n## Cost" in text
    html = page(sections, "rows.jsonl")
    assert "<a href='#s1'>Learning curves</a>" in html
    assert "<h2 id='s1'>Learning curves</h2>" in html


def test_texts_in_bold():
    table = Table("T", "C", ["A", "B_"], [["a_", "1 ± 2"]], [], bold=frozenset({(0, 1)}))
    assert "| a\\_ | **1 ± 2** |" in plain(table)
    assert r"a\_ & \textbf{1 $\pm$ 2} \\" in latex(table)
    assert "<td class=text>a_</td><td><b>1 ± 2</b></td>" in page([Section("S", [table], [])], "s")
