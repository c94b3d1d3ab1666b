"""Charts as inline SVG: intervals, bars, curves. Pure; every text is escaped; no script.

Colours are the page's (``--c0`` ...) and never the only difference: curves differ in dashes and
marks too. Each drawing has a title that a screen reader speaks; the numbers stand in a table beside
it, which is the caller's to give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.report.page import Html, escape

WIDTH = 720
_ROW, _TOP, _BOTTOM, _RIGHT = 26, 14, 46, 24
_LETTER, _CAPITAL = 7.2, 8.8  # width of a letter, about
_COLOURS = 6
_DASHES = ("none", "7 4", "2 3", "9 3 2 3", "4 2", "1 4")

Point = tuple[float, float]
Place = Callable[[float, float], Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its interval; without one, ``low`` and ``high`` are None."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One group of bars; a value of None draws none."""

    label: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points in ascending order of x; their intervals are drawn as whiskers."""

    label: str
    points: Sequence[tuple[float, Interval]]


def ticks(low: float, high: float, count: int = 6, *, whole: bool = False) -> list[float]:
    """Return round numbers that cover [low, high], about ``count``; only whole ones if asked."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("an axis needs finite ends")
    if high <= low:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    sizes = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(size * power for size in sizes if size * power >= raw * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def interval_chart(
    title: str, rows: Sequence[Interval], *, axis: str, zero: float | None = None
) -> Html:
    """Draw one line a row: a dot at its value, a line over its interval.

    ``zero`` is a value to mark, such as no difference. "" without rows.
    """
    if not rows:
        return Html("")
    ends = [row.value for row in rows] + [
        end for row in rows for end in (row.low, row.high) if end is not None
    ]
    ends += [] if zero is None else [zero]
    scale = _Across(ends, max(len(row.label) for row in rows))
    height = _TOP + _ROW * len(rows)
    parts = [scale.grid(height, axis)]
    if zero is not None:
        parts.append(_line((scale.x(zero), _TOP), (scale.x(zero), height), "zero"))
    for number, row in enumerate(rows):
        y = _TOP + _ROW * (number + 0.5)
        parts.append(_text((scale.left - 10, y + 4), row.label, "label", "end"))
        if row.low is not None and row.high is not None:
            parts.append(_stroke((scale.x(row.low), y), (scale.x(row.high), y), 0))
        parts.append(_dot((scale.x(row.value), y), 0, _said(row)))
    return _svg(title, height + _BOTTOM, parts)


def bar_chart(title: str, groups: Sequence[Bars], series: Sequence[str], *, axis: str) -> Html:
    """Draw groups of horizontal bars from 0, one bar for each name in ``series``."""
    values = [value for group in groups for value in group.values if value is not None]
    if not values:
        return Html("")
    scale = _Across([0.0, *values], max(len(group.label) for group in groups))
    thick, gap = 13, 12
    step = thick * len(series) + gap
    top = _TOP + 22
    height = top + step * len(groups)
    parts = [_legend(series, scale.left, dashed=False), scale.grid(height, axis, top)]
    for number, group in enumerate(groups):
        start = top + step * number + gap / 2
        middle = start + thick * len(series) / 2
        parts.append(_text((scale.left - 10, middle + 4), group.label, "label", "end"))
        for at, value in enumerate(group.values):
            if value is not None:
                said = f"{group.label}, {series[at]}: {value:.4g}"
                left, right = sorted((scale.x(0.0), scale.x(value)))
                parts.append(
                    f'<rect x="{left:.1f}" y="{start + thick * at:.1f}" '
                    f'width="{max(right - left, 0.5):.1f}" height="{thick - 2}" '
                    f'fill="var(--c{at % _COLOURS})"><title>{escape(said)}</title></rect>'
                )
    return _svg(title, height + _BOTTOM, parts)


def line_chart(title: str, curves: Sequence[Curve], *, axes: tuple[str, str]) -> Html:
    """Draw curves over one another; ``axes`` names the horizontal and the vertical one."""
    points = [(x, row) for curve in curves for x, row in curve.points]
    if not points:
        return Html("")
    ends = [row.value for _, row in points]
    ends += [end for _, row in points for end in (row.low, row.high) if end is not None]
    values = [x for x, _ in points]
    marks_y = ticks(min(ends), max(ends))
    marks_x = ticks(min(values), max(values), 10, whole=all(x == int(x) for x in values))
    left, right, top, bottom = 70, WIDTH - _RIGHT, _TOP + 36, 340

    def place(x: float, y: float) -> Point:
        across = (x - marks_x[0]) / (marks_x[-1] - marks_x[0])
        up = (y - marks_y[0]) / (marks_y[-1] - marks_y[0])
        return left + across * (right - left), bottom - up * (bottom - top)

    parts = [_legend([curve.label for curve in curves], left)]
    for mark in marks_y:
        y = place(marks_x[0], mark)[1]
        parts += [
            _line((left, y), (right, y), "axis"),
            _text((left - 8, y + 4), mark, "tick", "end"),
        ]
    for mark in marks_x:
        x = place(mark, marks_y[0])[0]
        parts.append(_text((x, bottom + 18), mark, "tick", "middle"))
    parts.append(_text(((left + right) / 2, bottom + 38), axes[0], "tick", "middle"))
    parts.append(_text((8, top - 10), axes[1], "tick", "start"))
    for number, curve in enumerate(curves):
        # A little aside, so that the whiskers of curves do not cover each other.
        parts += _curve(curve, number, _aside(place, 4.0 * (number - (len(curves) - 1) / 2)))
    return _svg(title, bottom + _BOTTOM, parts)


def _aside(place: Place, by: float) -> Place:
    def moved(x: float, y: float) -> Point:
        across, down = place(x, y)
        return across + by, down

    return moved


def _curve(curve: Curve, number: int, place: Place) -> list[str]:
    line = " ".join("{:.1f},{:.1f}".format(*place(x, row.value)) for x, row in curve.points)
    dash = _DASHES[number % len(_DASHES)]
    stroke = f'stroke="var(--c{number % _COLOURS})" stroke-width="2" stroke-dasharray="{dash}"'
    parts = [f'<polyline points="{line}" fill="none" {stroke}/>']
    for x, row in curve.points:
        if row.low is not None and row.high is not None:
            parts.append(_stroke(place(x, row.low), place(x, row.high), number, 0.45))
        parts.append(_dot(place(x, row.value), number, f"{curve.label} at {x:g}: {row.value:.4f}"))
    return parts


class _Across:
    """The horizontal axis of a chart whose rows have names on the left."""

    def __init__(self, values: Sequence[float], letters: int) -> None:
        self.left = min(16 + _LETTER * letters, WIDTH / 2)
        self._marks = ticks(min(values), max(values))

    def x(self, value: float) -> float:
        """Return where a value stands."""
        share = (value - self._marks[0]) / (self._marks[-1] - self._marks[0])
        return self.left + share * (WIDTH - _RIGHT - self.left)

    def grid(self, height: float, axis: str, top: float = _TOP) -> str:
        """Return the lines and numbers of the axis, and its name."""
        parts = []
        for mark in self._marks:
            x = self.x(mark)
            parts += [
                _line((x, top), (x, height), "axis"),
                _text((x, height + 17), mark, "tick", "middle"),
            ]
        middle = (self.left + WIDTH - _RIGHT) / 2
        return "".join([*parts, _text((middle, height + 36), axis, "tick", "middle")])


def _said(row: Interval) -> str:
    bounds = "" if row.low is None or row.high is None else f" [{row.low:.4f}, {row.high:.4f}]"
    return f"{row.label}: {row.value:.4f}{bounds}"


def _legend(names: Sequence[str], left: float, *, dashed: bool = True) -> str:
    parts, x = [], left
    for number, name in enumerate(names):
        parts.append(_stroke((x, 10), (x + 22, 10), number, 1.0, dashed=dashed))
        parts.append(_text((x + 28, 14), name, "label", "start"))
        x += 44 + _CAPITAL * len(name)
    return "".join(parts)


def _line(start: Point, end: Point, kind: str) -> str:
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'class="{kind}"/>'
    )


def _stroke(
    start: Point, end: Point, colour: int, opacity: float = 1.0, *, dashed: bool = False
) -> str:
    dash = f' stroke-dasharray="{_DASHES[colour % len(_DASHES)]}"' if dashed else ""
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="var(--c{colour % _COLOURS})" stroke-width="2" opacity="{opacity:g}"{dash}/>'
    )


def _dot(at: Point, colour: int, said: str) -> str:
    return (
        f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="var(--c{colour % _COLOURS})">'
        f"<title>{escape(said)}</title></circle>"
    )


def _text(at: Point, text: object, kind: str, anchor: str) -> str:
    shown = f"{text:g}" if isinstance(text, float) else text
    return (
        f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" class="{kind}" text-anchor="{anchor}">'
        f"{escape(shown)}</text>"
    )


def _svg(title: str, height: float, parts: Sequence[str]) -> Html:
    return Html(
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )
