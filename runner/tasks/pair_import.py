"""Scores of pairs that were computed elsewhere -> rows: a file of rows, or a CSV table.

Whoever has the published data knows the real pair ids, whoever has run a method the opaque ones:
both are taken, and rows hold the opaque ones.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from runner.rows.faults import FaultLog, RowRefused
from runner.rows.read import file_lines
from runner.strict_json import strict_loads
from runner.tasks.pair_dataset import PairDataset

MAX_TABLE_BYTES = 512 << 20


def import_rows(
    source: BinaryIO,
    dataset: PairDataset,
    ids: Sequence[str],  # noqa: ARG001 - a pair that is left out stays missing
    faults: FaultLog,
) -> Iterator[tuple[str, bytes]]:
    """Yield (pair id, row line) for what stands in a file; see ``api.Task.import_rows``."""
    real = dict(zip(dataset.column("ids"), dataset.ids, strict=True))
    opened = source.read(1)
    source.seek(0)
    if opened == b"{":
        for line in file_lines(source):
            document = strict_loads(line)
            if not isinstance(document, dict):
                raise RowRefused("rows.json", "a line is no JSON object")
            pair = str(document.get("pair_id"))
            pair = real.get(pair, pair)
            yield pair, _line({**document, "pair_id": pair})
        return
    yield from _table(source, real, faults)


def _table(source: BinaryIO, real: dict[str, str], faults: FaultLog) -> Iterator[tuple[str, bytes]]:
    data = source.read(MAX_TABLE_BYTES + 1)
    if len(data) > MAX_TABLE_BYTES:
        raise RowRefused("rows.import-too-large", f"more than {MAX_TABLE_BYTES} bytes of CSV")
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8"), newline=""), strict=True)
        if not {"pair_id", "score"} <= set(reader.fieldnames or ()):
            raise RowRefused("rows.import-form", "neither rows nor a table of pair_id and score")
        for row in reader:
            pair = real.get(row["pair_id"], row["pair_id"])
            try:
                score = float(row["score"])
            except (TypeError, ValueError):
                faults.add(reader.line_num, "rows.bad-score", "the score is no number")
                continue
            yield pair, _line({"pair_id": pair, "score": score, "error": None})
    except (UnicodeDecodeError, csv.Error) as error:
        raise RowRefused("rows.import-form", f"no CSV in UTF-8: {type(error).__name__}") from error


def _line(row: dict[str, object]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"
