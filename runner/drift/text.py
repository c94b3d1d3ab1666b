"""What a drift watch shows: a readable difference, and a small plot of the scores over time. Pure.

The plot is one SVG file without scripts or external files; colours are told apart in grey as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from runner.reproduction import difference_lines

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 300, 60, 30, 190, 40
COLOURS = ("#0b5394", "#b45309", "#166534", "#7e22ce", "#9f1239", "#334155")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
MAX_LINES = 12  # methods that are drawn; a plot of more tells nothing
MAX_LOOKS = 200  # the latest


def difference_text(record: Mapping[str, Any], document: Mapping[str, Any] | None) -> str:
    """Return the difference to the baseline for people; ``document`` is reproduction.json."""
    lines = [
        f"look {record['sequence']} at {record['time']}",
        f"baseline: sha256:{record['baseline']}",
        f"verdict:  {record['verdict']} ({record['reason']})",
        f"host:     {_host(record['host'])}",
    ]
    lines += [f"note:     {note}" for note in record["notes"]]
    if record["methods"]:
        lines += ["", f"{record['metric']}:"]
        lines += [
            f"  {one['method']}: {_number(one['baseline_score'])} -> {_number(one['score'])}"
            f" ({one['verdict']})"
            for one in record["methods"]
        ]
    found = list(difference_lines(document)) if document is not None else []
    if found:
        lines += ["", "what differs:", *(f"  {line}" for line in found)]
    return "\n".join(lines) + "\n"


def _host(host: Mapping[str, Any]) -> str:
    return f"{host['engine']}, kernel {host['kernel']}, sealbench {host['sealbench']}"


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.6f}"


def trend_svg(records: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """Return a plot of the primary metric of each method over the looks at one baseline."""
    looks = [one for one in records if one["baseline"] == baseline and one["methods"]][-MAX_LOOKS:]
    names = list(dict.fromkeys(m["method"] for one in looks for m in one["methods"]))[:MAX_LINES]
    scores = {
        name: [
            next((m["score"] for m in one["methods"] if m["method"] == name), None) for one in looks
        ]
        for name in names
    }
    known = [value for values in scores.values() for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    margin = (high - low) * 0.1 or 0.01
    scale = _Scale(len(looks), low - margin, high + margin)
    metric = looks[-1]["metric"] if looks else "score"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12" role="img" '
        f'aria-label="{escape(str(metric), quote=True)} over {len(looks)} looks">'
    )
    parts = [
        head,
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-weight="bold">{escape(str(metric))} by look</text>',
        *_axes(scale, looks),
    ]
    for index, name in enumerate(names):
        parts += _line(scale, index, name, scores[name])
    parts += [_mark(scale, at) for at, one in enumerate(looks) if one["drift"]]
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Scale:
    def __init__(self, count: int, low: float, high: float) -> None:
        self.count, self.low, self.high = count, low, high

    def x(self, at: int) -> float:
        width = WIDTH - LEFT - RIGHT
        return LEFT + (width / 2 if self.count < 2 else at * width / (self.count - 1))

    def y(self, value: float) -> float:
        height = HEIGHT - TOP - BOTTOM
        return TOP + height * (self.high - value) / (self.high - self.low)


def _axes(scale: _Scale, looks: Sequence[Mapping[str, Any]]) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = []
    for step in range(5):
        value = scale.low + (scale.high - scale.low) * step / 4
        y = scale.y(value)
        lines.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#d4d4d4"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4f}</text>'
        )
    for at in sorted({0, len(looks) - 1}) if looks else ():
        lines.append(
            f'<text x="{scale.x(at):.1f}" y="{bottom + 16}" text-anchor="middle">'
            f"{escape(str(looks[at]['time'])[:10])}</text>"
        )
    return lines


def _line(scale: _Scale, index: int, name: str, values: Sequence[float | None]) -> list[str]:
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
    points = [(scale.x(at), scale.y(v)) for at, v in enumerate(values) if v is not None]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    y = TOP + 6 + 16 * index
    x = WIDTH - RIGHT + 14
    style = f'stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}" fill="none"'
    return [
        f'<polyline points="{path}" {style}/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>' for x, y in points),
        f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" {style}/>',
        f'<text x="{x + 28}" y="{y + 4}">{escape(name)}</text>',
    ]


def _mark(scale: _Scale, at: int) -> str:
    x, bottom = scale.x(at), HEIGHT - BOTTOM
    return (
        f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#b91c1c" '
        f'stroke-dasharray="3 3"/><text x="{x:.1f}" y="{bottom + 30}" fill="#b91c1c" '
        f'text-anchor="middle">drift</text>'
    )
