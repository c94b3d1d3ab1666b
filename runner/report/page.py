"""A report as one HTML file: no script, no font, no picture from anywhere else, nothing unescaped.

Text reaches the page only through ``escape``; what is markup already is an ``Html``. Colours follow
the reader's light or dark mode, and paper is white.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

#: Neither scripts nor anything from outside can run or load, whatever a bug lets through.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LIGHT = (
    "--paper:#fff;--ink:#1b1f24;--faint:#5a636e;--line:#d5dae0;--band:#f4f6f8;"
    "--c0:#0b5fa5;--c1:#c2560c;--c2:#0e7a53;--c3:#8a3d97;--c4:#7a6a00;--c5:#a3253f"
)
_DARK = (
    "--paper:#14181d;--ink:#e4e8ec;--faint:#a0a9b4;--line:#39414b;--band:#1d232a;"
    "--c0:#6cb2f2;--c1:#f0945a;--c2:#4fc79a;--c3:#cf8fdb;--c4:#cdbb4a;--c5:#ef7f95"
)
_STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
@media print{{:root{{{_LIGHT}}}body{{max-width:none;font-size:12px}}
figure,tr{{break-inside:avoid}}.scroll{{overflow:visible}}
table{{font-size:9px}}th,td{{padding:2px 4px}}}}
body{{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:2rem auto;
padding:0 1rem;max-width:62rem}}
h1{{font-size:1.6rem;margin:0}}h2{{font-size:1.15rem;margin:2.2rem 0 .6rem}}
p,ul{{margin:.4rem 0;max-width:48rem}}li{{margin:.2rem 0;overflow-wrap:anywhere}}
.faint,figcaption,footer{{color:var(--faint);font-size:.88rem}}
.scroll{{overflow-x:auto}}table{{border-collapse:collapse;font-size:.9rem}}
th,td{{padding:.25rem .7rem;text-align:left;border-bottom:1px solid var(--line)}}
th{{font-weight:600}}td:first-child{{white-space:nowrap}}
tbody tr:nth-child(even){{background:var(--band)}}
.n{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
figure{{margin:1rem 0}}svg{{max-width:100%;height:auto}}
code{{font-size:.85em;overflow-wrap:anywhere}}footer{{margin-top:3rem}}
.axis{{stroke:var(--line);stroke-width:1}}.zero{{stroke:var(--ink);stroke-width:1}}
.label{{fill:var(--ink);font-size:13px}}.tick{{fill:var(--faint);font-size:12px}}
"""


class Html(str):
    """Text that is markup already: every part of it was escaped or is ours."""

    __slots__ = ()


Cell = str | Html


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands below it; an empty heading is left out."""

    title: str
    parts: Sequence[Html]


def escape(text: object) -> Html:
    """Return text as markup that shows just that text; an ``Html`` stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(str(text), quote=True))


def join(parts: Iterable[Html], between: str = "") -> Html:
    """Join markup."""
    return Html(between.join(parts))


def paragraph(text: Cell, *, faint: bool = False) -> Html:
    """Return a paragraph; ``faint`` is for remarks."""
    mark = ' class="faint"' if faint else ""
    return Html(f"<p{mark}>{escape(text)}</p>")


def code(text: str) -> Html:
    """Return text in a fixed-width font."""
    return Html(f"<code>{escape(text)}</code>")


def table(
    head: Sequence[Cell], rows: Sequence[Sequence[Cell]], *, numbers: Collection[int] = ()
) -> Html:
    """Return a table; the columns ``numbers`` (0, 1, ...) are set to the right."""

    def line(cells: Sequence[Cell], tag: str) -> str:
        right = ' class="n"'
        return "".join(
            f"<{tag}{right if at in numbers else ''}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return Html(
        f'<div class="scroll"><table><thead><tr>{line(head, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def items(texts: Iterable[Cell]) -> Html:
    """Return a list."""
    return Html(f"<ul>{join(Html(f'<li>{escape(text)}</li>') for text in texts)}</ul>")


def figure(drawing: Html, caption: Cell = "") -> Html:
    """Return a drawing with a line below it."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return Html(f"<figure>{drawing}{below}</figure>")


def page(title: str, lead: Sequence[Html], sections: Sequence[Section], footer: Cell = "") -> str:
    """Return a whole document."""
    body = [f"<h1>{escape(title)}</h1>", *lead]
    for section in sections:
        heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
        body.append(f"<section>{heading}{join(section.parts)}</section>")
    if footer:
        body.append(f"<footer>{escape(footer)}</footer>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )
