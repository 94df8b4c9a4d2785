"""HTML as a type of its own: what is no `Html` is text, and is escaped when it becomes part of a page.

Text cannot be taken for HTML by mistake: `element` and `join` escape whatever is not `Html`, and an `Html` in an
f-string is an error.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Html:
    """A piece of a page, made by `element` and `join`."""

    content: str

    def __str__(self) -> str:
        raise TypeError("HTML is put together by `element` and `join`, not as text.")


Content = Html | str
"""What an element may contain; a `str` is text."""

NOTHING = Html("")
_VOID = ("br", "img", "meta", "source")


def element(name: str, /, *children: Content, **attributes: str | int | None) -> Html:
    """Returns an element, well-formed as XML too.

    Args:
      name: of the element.
      *children: what it contains.
      **attributes: by name, `class_` for `class`, `http_equiv` for `http-equiv`; those that are `None` are left out.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    start = " ".join([name, *(f'{key}="{escape(str(value))}"' for key, value in given.items())])
    return Html(f"<{start}/>" if name in _VOID else f"<{start}>{join(children).content}</{name}>")


def join(parts: Iterable[Content]) -> Html:
    """Returns pieces one after the other."""
    return Html("".join(part.content if isinstance(part, Html) else escape(part) for part in parts))


def escape(text: str) -> str:
    """Text as HTML; characters that no page may hold are replaced."""
    return html.escape(legible(text, keep="\n\t"), quote=True)


def legible(text: str, keep: str = "") -> str:
    """Text without what controls a terminal, turns the direction of writing, or cannot be encoded."""
    return "".join(c if c.isprintable() or c in keep else "\N{REPLACEMENT CHARACTER}" for c in text)
