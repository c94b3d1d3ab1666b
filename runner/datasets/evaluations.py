"""Ratings that reviewers gave to papers: a table parted by tabs, one reviewer a line.

The header is ``ParticipantID``, ``Paper1`` ... ``PaperN``, ``Expertise1`` ... ``ExpertiseN``; cells
beyond a reviewer's last rating are empty. A missing rating is no zero. Reviewers are people: no
message names one, only the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from runner.datasets.lines import HashedLines, check_id, refuse

LOWEST, HIGHEST, STEPS = 1.0, 5.0, 4
_NUMBER = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?\Z")
_PERSON = "ParticipantID"


def read_evaluations(lines: HashedLines, path: Path) -> Mapping[str, Mapping[str, float]]:
    """Return reviewer -> paper -> rating (1 to 5 in quarter points), in file order.

    ``DataError`` for another separator, a gap among the ratings, ``NaN`` in words, a rating out of
    bounds, a paper or reviewer that stands twice, and a reviewer without any rating.
    """
    found: dict[str, dict[str, float]] = {}
    width = 0
    for number, text in lines:
        cells = text.split("\t")
        if number == 1:
            width = _width(cells, text, path)
            continue
        if len(cells) != 1 + 2 * width:
            message = f"{len(cells)} columns; the header has {1 + 2 * width}"
            fix = "part all cells by single tabs, empty ones too"
            refuse("data.bad-columns", message, fix=fix, path=path, line=number)
        person = cells[0]
        if not person.strip() or not person.isprintable():
            fix = "give every line the reviewer's id"
            refuse("data.bad-id", "no usable reviewer id", fix=fix, path=path, line=number)
        if person in found:
            fix = "put all ratings of one reviewer on one line"
            message = "this reviewer has a line already"
            refuse("data.duplicate-reviewer", message, fix=fix, path=path, line=number)
        found[person] = _ratings(cells[1 : 1 + width], cells[1 + width :], path, number)
    if not found:
        refuse("data.empty", "no reviewers", fix="add the ratings", path=path)
    return found


def _width(cells: list[str], text: str, path: Path) -> int:
    width = (len(cells) - 1) // 2
    header = [_PERSON]
    header += [f"{word}{n + 1}" for word in ("Paper", "Expertise") for n in range(width)]
    if "\t" not in text and "," in text:
        message, fix = "the columns are parted by commas", "part them by tabs, as published"
        refuse("data.not-tab-separated", message, fix=fix, path=path, line=1)
    if not width or cells != header:
        message = f"the header is not {_PERSON}, Paper1 ..., Expertise1 ..."
        fix = "use the published file: one Paper and one Expertise column for each rating"
        refuse("data.bad-header", message, fix=fix, path=path, line=1)
    return width


def _ratings(papers: list[str], values: list[str], path: Path, line: int) -> dict[str, float]:
    found: dict[str, float] = {}
    ended = False
    for position, (paper, value) in enumerate(zip(papers, values, strict=True), 1):
        if not paper and not value:
            ended = True
            continue
        if ended:
            _refuse_gap(position, path, line)
        if not paper or not value:
            have, lack = ("a rating", "no paper") if value else ("a paper", "no rating")
            message = f"number {position} has {have} and {lack}"
            fix = "give both or leave both empty; a missing rating is no zero"
            refuse("data.half-rating", message, fix=fix, path=path, line=line)
        if check_id(paper, path, line) in found:
            fix = "keep one rating of each paper"
            message = f"number {position} rates a paper that this reviewer has rated already"
            refuse("data.duplicate-rating", message, fix=fix, path=path, line=line)
        found[paper] = _rating(value, position, path, line)
    if not found:
        fix = "remove the line, or add the ratings"
        refuse("data.no-ratings", "a reviewer without ratings", fix=fix, path=path, line=line)
    return found


def _rating(text: str, position: int, path: Path, line: int) -> float:
    if text.strip().lower() in ("nan", "na", "none", "null"):
        _refuse_gap(position, path, line)
    value = float(text) if _NUMBER.match(text) else 0.0
    if not LOWEST <= value <= HIGHEST or value * STEPS % 1:
        message = f"rating number {position} is no number from 1 to 5 in steps of 0.25"
        fix = "rate with 1, 1.25, ... 5; leave cells after the last rating empty"
        refuse("data.bad-rating", message, fix=fix, path=path, line=line)
    return value


def _refuse_gap(position: int, path: Path, line: int) -> NoReturn:
    refuse(
        "data.gap-in-ratings",
        f"number {position} stands after a gap, or is one: NaN or an empty cell inside the ratings",
        fix="move ratings up so that empty cells come last",
        path=path,
        line=line,
    )
