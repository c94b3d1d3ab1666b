"""Predictions that were made elsewhere -> rows: a table, the authors' JSON, or rows.

The table has columns ``reviewer``, ``paper`` and one for each version, named as the dataset's
version is; JSON is ``{reviewer: {paper: score}}``. Both are under the published ids, which no row
or message repeats: rows are under opaque ids. The format is told by the content.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from runner.datasets.reviewers import ExpertiseDataset
from runner.rows.faults import FaultLog, RowRefused
from runner.rows.read import file_lines
from runner.strict_json import strict_loads

MAX_BYTES = 512 << 20
_LEAD = ("reviewer", "paper")


def import_rows(
    source: BinaryIO, dataset: ExpertiseDataset, ids: Sequence[str], faults: FaultLog
) -> Iterator[tuple[str, bytes]]:
    """Yield (reviewer's opaque id, row line); see ``api.Task.import_rows``.

    A reviewer of whom nothing is said has no row. Extra papers and repeated pairs are faults.
    """
    head = source.readline(MAX_BYTES)
    source.seek(0)
    if head.lstrip().startswith(b"{"):
        if _is_row(head):
            yield from _rows(source)
            return
        scores = _from_json(source)
    else:
        scores = _from_table(source, dataset, faults)
    for who, papers in scores.items():
        alias = dataset.real_reviewers.get(who)
        if alias is not None and alias in ids:
            yield alias, _row(alias, papers, dataset, faults)
        else:
            yield "", b""  # of nobody that is asked about: left out, and counted


def _is_row(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and {"reviewer_id", "scores"} <= document.keys()


def _rows(source: BinaryIO) -> Iterator[tuple[str, bytes]]:
    for line in file_lines(source):
        document = strict_loads(line)
        if not isinstance(document, dict):
            raise RowRefused("rows.json", "a line is no JSON object")
        yield str(document.get("reviewer_id")), line


def _from_json(source: BinaryIO) -> Mapping[str, Mapping[str, Any]]:
    data = source.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise RowRefused("rows.import-too-large", f"more than {MAX_BYTES} bytes of JSON")
    try:
        document = strict_loads(data)
    except RowRefused as refused:  # its message may quote a key, which is a person's id
        raise RowRefused(refused.code, "no strict JSON object of scores") from None
    if not isinstance(document, dict) or not all(isinstance(v, dict) for v in document.values()):
        raise RowRefused("rows.import-form", "expected {reviewer: {paper: score}}")
    return document


def _from_table(
    source: BinaryIO, dataset: ExpertiseDataset, faults: FaultLog
) -> Mapping[str, Mapping[str, Any]]:
    version = dataset.places.get("version", dataset.name)
    lines = (line.decode("utf-8", "replace") for line in file_lines(source))
    table = csv.reader(lines)
    head = next(table, [])
    if tuple(head[:2]) != _LEAD:
        message = "neither a table with reviewer, paper and versions, nor JSON, nor rows"
        raise RowRefused("rows.import-form", message)
    if version not in head:
        raise RowRefused("rows.import-version", f"the table has no column {version!r}")
    column, found = head.index(version), dict[str, dict[str, Any]]()
    try:
        for number, cells in enumerate(table, 2):
            _take(cells, (len(head), column), found, (number, faults))
    except csv.Error as error:
        raise RowRefused("rows.import-form", f"no table: {error}") from None
    return found


def _take(
    cells: list[str],
    shape: tuple[int, int],
    found: dict[str, dict[str, Any]],
    place: tuple[int, FaultLog],
) -> None:
    """Take one line of a table; a bad one is a fault at its place."""
    (width, column), (number, faults) = shape, place
    if len(cells) != width:
        faults.add(number, "rows.import-columns", f"{len(cells)} columns; the header has {width}")
        return
    papers = found.setdefault(cells[0], {})
    if cells[1] in papers:
        faults.add(number, "rows.duplicate-score", "this reviewer and paper have a score already")
    try:
        papers[cells[1]] = float(cells[column])
    except ValueError:
        faults.add(number, "rows.no-number", "the score is no number; a missing one is no zero")
        return
    if not math.isfinite(papers[cells[1]]):
        del papers[cells[1]]
        faults.add(number, "rows.not-finite", "the score is not finite")


def _row(
    alias: str, papers: Mapping[str, Any], dataset: ExpertiseDataset, faults: FaultLog
) -> bytes:
    known = dataset.real_submissions
    extra = sum(paper not in known for paper in papers)
    if extra:
        faults.add(1, "rows.unknown-paper", f"{extra} papers of reviewer {alias} are none we asked")
    scores = {known[paper]: score for paper, score in papers.items() if paper in known}
    row = {"reviewer_id": alias, "scores": dict(sorted(scores.items())), "error": None}
    return json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n"
