"""The whole report as one HTML page that needs no other file."""

import html
from collections.abc import Iterable

from lra.report.figure_files import Figure, svg_element
from lra.report.formats import one_line
from lra.report.sections import Section
from lra.report.table import Table

_CSS = """
:root { --ink: #1d1d1f; --faint: #6a6a70; --rule: #d9d9de; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff;
       max-width: 62rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; padding-top: .8rem;
     border-top: 2px solid var(--ink); overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 2rem 0 .2rem; }
summary { margin: .6rem 0 .2rem; cursor: pointer; }
p { margin: .2rem 0 .7rem; max-width: 46rem; }
nav a { color: inherit; }
.note, .caption, figcaption { color: var(--faint); font-size: .86rem; }
/* Wide tables may use the margin on the right. */
.scroll { overflow-x: auto; margin-right: min(0px, 32rem - 50vw); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem;
        border-top: 1.5px solid var(--ink); border-bottom: 1.5px solid var(--ink); }
th, td { padding: .28rem .8rem .28rem 0; text-align: right; white-space: nowrap; }
th { border-bottom: 1px solid var(--ink); font-weight: 600; }
.text { text-align: left; }
tbody tr:nth-child(n + 2) td { border-top: 1px solid var(--rule); }
tbody tr:hover { background: #f5f5f7; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr));
           gap: 1.5rem; margin: 1.5rem 0; }
figure { margin: 0; max-width: 27rem; }
figure svg { width: 100%; height: auto; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; }
  /* Paper does not scroll. */
  .scroll { overflow: visible; margin-right: 0; } table { font-size: .7rem; }
  th, td { padding-right: .3rem; } }
"""


def page(sections: list[Section], sources: str, summary: str = "") -> str:
    """Render a report as one HTML page.

    Args:
        sections: Sections of the report.
        sources: Names of the files of rows, in words.
        summary: First paragraph of the page, if any.
    """
    opening = f"<p>{_escape(summary)}</p>" if summary else ""
    body = [f"<h1>Results</h1>{opening}<p class='caption'>Rendered from {_escape(sources)}.</p>"]
    if len(sections) > 1:
        titles = enumerate(_escape(section.title) for section in sections)
        links = (f"<li><a href='#s{number}'>{title}</a>" for number, title in titles)
        body += ["<nav><ul>", *links, "</ul></nav>"]
    for number, section in enumerate(sections):
        body.append(f"<section><h2 id='s{number}'>{_escape(section.title)}</h2>")
        body += [f"<p>{_escape(section.legend)}</p>"] if section.legend else []
        before, after = section.around_figures
        body += map(_table, before)
        if section.figures:
            figures = (_figure(f, f"s{number}f{nth}-") for nth, f in enumerate(section.figures))
            body += ["<div class='figures'>", *figures, "</div>"]
        body += map(_table, after)
        body.append("</section>")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'><title>Results</title>"
        f"<style>{_CSS}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _table(table: Table) -> str:
    is_text = table.text_columns()
    notes = "".join(f"<p class='note'>{_escape(note)}</p>" for note in table.notes)
    content = (
        f"<p class='caption'>{_escape(table.caption)}</p>"
        f"<div class='scroll'><table><thead>{_row('th', map(_escape, table.header), is_text)}"
        "</thead><tbody>"
        + "".join(_row("td", line, is_text) for line in table.marked_up(_escape, "<b>{}</b>"))
        + f"</tbody></table></div>{notes}"
    )
    if table.folded:
        return f"<details><summary>{_escape(table.title)}</summary>{content}</details>"
    return f"<h3>{_escape(table.title)}</h3>{content}"


def _row(tag: str, cells: Iterable[str], is_text: list[bool]) -> str:
    tagged = (
        f"<{tag}{' class=text' if text else ''}>{cell}</{tag}>"
        for cell, text in zip(cells, is_text, strict=True)
    )
    return f"<tr>{''.join(tagged)}</tr>"


def _figure(figure: Figure, prefix: str) -> str:
    caption = f"<figcaption>{_escape(figure.caption)}</figcaption>"
    return f"<figure>{svg_element(figure, prefix)}{caption}</figure>"


def _escape(text: str) -> str:
    return html.escape(one_line(text))
