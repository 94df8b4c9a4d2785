"""The page: one HTML file that needs nothing else. It is well-formed XML as well, so that a test can parse it."""

from __future__ import annotations

import base64
import dataclasses
import html
import re
from collections.abc import Sequence

from experiments.report.drawing import Picture

CSS = """
:root { color-scheme: light dark; --ink: #1d232b; --soft: #59636e; --line: #d5dae0; --paper: #fff; --tint: #f4f6f8;
  --link: #0b5cad; --good: #1c7c45; --warn: #8a5300; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #a3adb8; --line: #3a424c;
  --paper: #14181d; --tint: #1d232a; --link: #7db7f0; --good: #6fce97; --warn: #e5b062; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem 1rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .6rem 0; max-width: 46rem; }
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
  line-height: 1.5; overflow-x: auto; font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
@media (max-width: 40rem) { body { padding: .75rem .75rem 3rem; } h1 { font-size: 1.4rem; }
  th, td { padding: .3rem .45rem; } }
@media print { @page { margin: 15mm; } body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; } h2, h3 { break-after: avoid; } figure, tr, .keep { break-inside: avoid; }
  thead { display: table-header-group; } .box { overflow: visible; border: 0; }
  table { font-size: 7.5pt; } th, td { padding: .15rem .3rem; white-space: normal; }
  td.text:first-child { position: static; }
  pre { white-space: pre-wrap; overflow: visible; overflow-wrap: anywhere; } p, figcaption { orphans: 3; widows: 3; }
  figure img { max-height: 88mm; width: auto; }
  .keep { break-before: avoid; } ol.notes { font-size: 8pt; } }
"""


@dataclasses.dataclass
class Section:
    """A part of the page: a heading and HTML."""

    anchor: str
    title: str
    parts: list[str] = dataclasses.field(default_factory=list)


class Notes:
    """Footnotes of a table; the same text is one note."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def marks(self, texts: Sequence[str]) -> str:
        """Returns the marks of some notes, as HTML."""
        self._texts += [text for text in texts if text not in self._texts]
        return ", ".join(map(str, sorted(self._texts.index(text) + 1 for text in texts)))

    def html(self) -> str:
        """All notes, as a list."""
        items = "".join(f"<li>{escape(text)}</li>" for text in self._texts)
        return f'<ol class="notes">{items}</ol>' if items else ""


def escape(text: object) -> str:
    """Text as HTML."""
    return html.escape(str(text), quote=True)


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text, with code between backticks."""
    content = re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))
    return f'<p class="{kind}">{content}</p>' if kind else f"<p>{content}</p>"


def heading(text: str) -> str:
    """A heading within a section."""
    return f"<h3>{escape(text)}</h3>"


def table(header: Sequence[str], rows: Sequence[Sequence[str] | str], text_columns: Sequence[int] = (0,)) -> str:
    """A table in a box that scrolls by itself.

    Args:
      header: of the columns, as plain text.
      rows: cells as HTML each; a row that is one text is a heading of the rows that follow.
      text_columns: those that are aligned to the left.
    """

    def kind(i: int) -> str:
        return ' class="text"' if i in text_columns else ""

    head = "".join(f'<th scope="col"{kind(i)}>{escape(name)}</th>' for i, name in enumerate(header))
    lines = []
    for row in rows:
        if isinstance(row, str):
            lines.append(f'<tr class="group"><th colspan="{len(header)}" scope="rowgroup">{escape(row)}</th></tr>')
        else:
            lines.append("<tr>" + "".join(f"<td{kind(i)}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>")
    # tabindex: a box that scrolls must be within reach of the keyboard.
    return (
        f'<div class="box" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def figure(picture: Picture, alt: str, caption: str, small: bool = False) -> str:
    """A picture, inlined; the browser takes the form that fits."""
    light, *others = (f"data:image/png;base64,{base64.b64encode(png).decode()}" for png in picture)
    dark, phone = "(prefers-color-scheme: dark)", "(max-width: 40rem)"
    media = (dark, phone, f"{phone} and {dark}")
    # The first that fits is taken: the most particular comes first. Paper is always light and wide.
    sources = "".join(
        f'<source media="screen and {query}" srcset="{data}"/>'
        for query, data in reversed([*zip(media, others, strict=True)])
    )
    kind = ' class="small"' if small else ""
    return (
        f'<figure{kind}><picture>{sources}<img src="{light}" alt="{escape(alt)}"/></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def commands(lines: Sequence[str]) -> str:
    """The commands that made what is above."""
    return f'<div class="keep"><pre>{escape(chr(10).join(lines))}</pre></div>' if lines else ""


def build_page(title: str, introduction: Sequence[str], sections: Sequence[Section]) -> str:
    """Returns the whole page."""
    links = "".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in sections)
    body = "".join(f'<section id="{s.anchor}"><h2>{escape(s.title)}</h2>{"".join(s.parts)}</section>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body><header><h1>{escape(title)}</h1>"
        f'{"".join(introduction)}</header><nav aria-label="Contents"><ul>{links}</ul></nav><main>{body}</main>'
        "</body></html>\n"
    )
