"""The HTML page, as a browser needs it."""

import re

from matplotlib import pyplot

from lra.report.figure_files import Figure
from lra.report.page import page
from lra.report.sections import Section
from lra.report.table import Table


def draw():
    drawn, axes = pyplot.subplots(1, 1)
    axes.plot([0, 1], marker="o")
    return drawn


def test_figures_on_a_page_share_no_id_and_refer_to_their_own():
    sections = [Section("S", [], [Figure("a", "A", draw), Figure("b", "B", draw)])] * 2
    text = page(sections, "rows.jsonl")
    ids = re.findall(r'id="(.*?)"', text)
    assert len(ids) == len(set(ids))
    drawings = text.split("<svg")[1:]
    assert len(drawings) == 4
    for drawing in drawings:
        referred = set(re.findall(r'(?:href="|url\()#(.*?)["\)]', drawing))
        assert referred
        assert referred <= set(re.findall(r'id="(.*?)"', drawing))
    assert page(sections, "rows.jsonl") == text


def test_the_first_table_stands_before_the_figures_and_the_others_after():
    tables = [Table(title, "", ["x"], [], []) for title in ("First", "Second")]
    text = page([Section("S", tables, [Figure("a", "A", draw)])], "rows.jsonl")
    places = [text.index(part) for part in (">First<", "<svg", ">Second<")]
    assert places == sorted(places)
