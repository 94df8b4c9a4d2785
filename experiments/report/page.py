"""The page: one HTML file that needs nothing else. It is well-formed XML as well, so that a test can parse it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Sequence

from experiments.report.drawing import Picture
from experiments.report.html import NOTHING, Content, Html, element, join

CSS = """
:root { color-scheme: light dark; --ink: #1d232b; --soft: #59636e; --line: #d5dae0; --paper: #fff; --tint: #f4f6f8;
  --link: #0b5cad; --good: #1c7c45; --warn: #8a5300; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #a3adb8; --line: #3a424c;
  --paper: #14181d; --tint: #1d232a; --link: #7db7f0; --good: #6fce97; --warn: #e5b062; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem 1rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .25rem 0; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .6rem 0; max-width: 46rem; }
.verdict { font-size: 1.1rem; max-width: none; margin: .5rem 0; }
a { color: var(--link); }
nav ul { columns: 2 16rem; padding-left: 1.2rem; margin: .5rem 0; }
.soft, figcaption, caption { color: var(--soft); }
.missing { border-left: 3px solid var(--warn); padding: .1rem 0 .1rem .8rem; color: var(--soft); font-size: .9rem; }
code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .85em; }
.box { overflow-x: auto; margin: .75rem 0; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .65rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
th { text-align: left; font-weight: 600; }
thead th { background: var(--tint); border-top: 0; text-align: right; white-space: normal; vertical-align: bottom; }
td.text, thead th.text { text-align: left; }
td.text:first-child { white-space: normal; position: sticky; left: 0; background: var(--paper); min-width: 7rem; }
tr.group th { background: var(--tint); }
.good { color: var(--good); } .warn { color: var(--warn); }
sup { line-height: 0; }
ol.notes { font-size: .85rem; color: var(--soft); padding-left: 1.6rem; margin: .5rem 0; }
figure { margin: 1.25rem 0; }
figure img { display: block; width: 100%; max-width: 100%; height: auto; border-radius: 6px; }
figure.small img { max-width: 40rem; }
figcaption { font-size: .875rem; margin-top: .4rem; max-width: 46rem; }
pre { margin: .4rem 0; padding: .5rem .7rem; background: var(--tint); border-radius: 6px; font-size: .75rem;
  line-height: 1.5; font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
pre code { display: block; font-size: 1em; white-space: pre-wrap; overflow-wrap: anywhere; padding-left: 2em;
  text-indent: -2em; }
td code { white-space: pre-wrap; overflow-wrap: anywhere; display: block; min-width: 22rem; }
@media (max-width: 40rem) { body { padding: .75rem .75rem 3rem; } h1 { font-size: 1.2rem; }
  .verdict { font-size: .95rem; line-height: 1.4; } header figure { margin: .5rem 0; }
  th, td { padding: .3rem .45rem; } }
@media print { @page { margin: 15mm; } body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; } h2, h3 { break-after: avoid; } figure, tr, .keep { break-inside: avoid; }
  thead { display: table-header-group; } .box { overflow: visible; border: 0; }
  table { font-size: 7.5pt; } th, td { padding: .15rem .3rem; white-space: normal; }
  td.text:first-child { position: static; }
  p, figcaption { orphans: 3; widows: 3; }
  figure img { max-height: 88mm; width: auto; }
  .keep { break-before: avoid; } ol.notes { font-size: 8pt; } }
"""


def _policy() -> str:
    """Nothing is fetched and no script runs, whatever the page may hold; pictures are inlined, the style is known."""
    style = base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


@dataclasses.dataclass
class Section:
    """A part of the page: a heading and what follows it; left out as long as there is nothing."""

    anchor: str
    title: str
    parts: list[Html] = dataclasses.field(default_factory=list)


class Notes:
    """Footnotes of a table; the same text is one note."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def marks(self, texts: Sequence[str]) -> str:
        """Returns the marks of some notes."""
        self._texts += [text for text in texts if text not in self._texts]
        return ", ".join(map(str, sorted(self._texts.index(text) + 1 for text in texts)))

    def html(self) -> Html:
        """All notes, as a list."""
        items = [element("li", text) for text in self._texts]
        return element("ol", *items, class_="notes") if items else NOTHING


def paragraph(text: str, kind: str | None = None) -> Html:
    """A paragraph of plain text, with code between backticks."""
    parts = re.split("`([^`]*)`", text)
    return element("p", *(element("code", part) if i % 2 else part for i, part in enumerate(parts)), class_=kind)


def heading(text: str) -> Html:
    """A heading within a section."""
    return element("h3", text)


def listing(items: Sequence[str]) -> Html:
    """A list of sentences."""
    return element("ul", *(element("li", item) for item in items), class_="soft") if items else NOTHING


def table(header: Sequence[str], rows: Sequence[Sequence[Content] | str], text_columns: Sequence[int] = (0,)) -> Html:
    """A table in a box that scrolls by itself.

    Args:
      header: of the columns.
      rows: the cells of each; a row that is one text is a heading of the rows that follow.
      text_columns: those that are aligned to the left.
    """

    def kind(i: int) -> str | None:
        return "text" if i in text_columns else None

    head = [element("th", name, scope="col", class_=kind(i)) for i, name in enumerate(header)]
    lines = []
    for row in rows:
        if isinstance(row, str):
            cells = [element("th", row, colspan=len(header), scope="rowgroup")]
            lines.append(element("tr", *cells, class_="group"))
        else:
            lines.append(element("tr", *(element("td", cell, class_=kind(i)) for i, cell in enumerate(row))))
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *lines))
    # tabindex: a box that scrolls must be within reach of the keyboard.
    return element("div", whole, class_="box", tabindex=0)


def figure(picture: Picture, alt: str, caption: str, small: bool = False) -> Html:
    """A picture, inlined; the browser takes the form that fits."""
    light, *others = (f"data:image/png;base64,{base64.b64encode(png).decode()}" for png in picture)
    dark, phone = "(prefers-color-scheme: dark)", "(max-width: 40rem)"
    media = (dark, phone, f"{phone} and {dark}")
    # The first that fits is taken: the most particular comes first. Paper is always light and wide.
    sources = [
        element("source", media=f"screen and {query}", srcset=data)
        for query, data in reversed([*zip(media, others, strict=True)])
    ]
    shown = element("picture", *sources, element("img", src=light, alt=alt))
    return element("figure", shown, element("figcaption", caption), class_="small" if small else None)


def commands(lines: Sequence[str]) -> Html:
    """The commands that made what is above, each broken where the page ends and copied as one line."""
    if not lines:
        return NOTHING
    return element("div", element("pre", *(element("code", line) for line in lines)), class_="keep")


def build_page(title: str, lead: Sequence[Html], sections: Sequence[Section], end: Sequence[Html] = ()) -> str:
    """Returns the whole page.

    Args:
      title: of the page.
      lead: what comes before the contents.
      sections: those with nothing in them are left out.
      end: what comes after them.
    """
    shown = [section for section in sections if section.parts]
    links = [element("li", element("a", s.title, href=f"#{s.anchor}")) for s in shown]
    body = [element("section", element("h2", s.title), *s.parts, id=s.anchor) for s in shown]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        Html(f"<style>{CSS}</style>"),
    )
    contents = element("nav", element("ul", *links), aria_label="Contents") if links else NOTHING
    parts = [
        element("header", element("h1", title), *lead), contents,
        element("main", *body), element("footer", *end) if end else NOTHING,
    ]  # fmt: skip
    return "<!DOCTYPE html>\n" + join([element("html", head, element("body", *parts), lang="en"), "\n"]).content
