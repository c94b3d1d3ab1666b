"""Results of retrieval that were made elsewhere -> rows: TREC runs, BEIR's and MTEB's JSON, rows.

The format is told by the content. Latencies are dropped: they were measured on another machine, by
somebody else. TREC runs and BEIR's results cannot say that a query found nothing other than by
leaving it out, so such a query gets a row with an error: it counts, as an empty ranking does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from runner.rows.faults import NO_RESULT, FaultLog, RowRefused
from runner.rows.read import file_lines
from runner.strict_json import strict_loads
from runner.tasks.code_collection import Collection
from runner.trec import trec_to_rows

#: BEIR's JSON is parsed whole, at several times its size in memory. A TREC run is streamed.
MAX_JSON_BYTES = 512 << 20
#: MTEB puts these beside the results; what else is there are subsets of a task.
_MTEB_META = "mteb_model_meta"
_RANKING = b',"ranking":'


def import_rows(
    source: BinaryIO, dataset: Collection, ids: Sequence[str], faults: FaultLog
) -> Iterator[tuple[str, bytes]]:
    """Yield (query id, row line) for what stands in a file; see ``api.Task.import_rows``."""
    head = _first_line(source)
    if not head.lstrip().startswith(b"{"):
        yield from _with_missing(_trec(source, faults), ids)
    elif _is_row(head):
        yield from _rows(source)
    else:
        yield from _with_missing(_beir(source, dataset), ids)


def _first_line(source: BinaryIO) -> bytes:
    """The first line that is not blank; the source is back at its beginning afterwards."""
    line = next((line for line in file_lines(source) if line.strip()), b"")
    source.seek(0)
    return line


def _is_row(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except ValueError:  # the first line of a document that goes on
        return False
    return isinstance(document, dict) and {"query_id", "ranking"} <= document.keys()


def _trec(source: BinaryIO, faults: FaultLog) -> Iterator[tuple[str, bytes]]:
    for line in trec_to_rows(source, faults):
        # The writer's own form: no such bytes can stand inside an id, whose quotes are escaped.
        head = line[: line.index(_RANKING)] + b"}"
        yield str(json.loads(head)["query_id"]), line


def _rows(source: BinaryIO) -> Iterator[tuple[str, bytes]]:
    for line in file_lines(source):
        document = strict_loads(line)
        if not isinstance(document, dict):
            raise RowRefused("rows.json", "a line is no JSON object")
        yield str(document.get("query_id")), _line({**document, "latency_ms": None})


def _beir(source: BinaryIO, dataset: Collection) -> Iterator[tuple[str, bytes]]:
    data = source.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        message = f"more than {MAX_JSON_BYTES} bytes of JSON: convert it to a TREC run"
        raise RowRefused("rows.import-too-large", message)
    document = strict_loads(data)
    del data
    for query, scores in _unwrapped(document, dataset.qrels_split).items():
        if not isinstance(scores, dict):
            raise RowRefused("rows.import-form", "expected {query id: {document id: score}}")
        ranking = [[document, score] for document, score in scores.items()]
        yield (
            query,
            _line({"query_id": query, "ranking": ranking, "latency_ms": None, "error": None}),
        )


def _unwrapped(document: object, split: str) -> Mapping[str, Any]:
    """Return {query: {document: score}}, which MTEB's files hold per subset and split."""
    if not isinstance(document, dict):
        raise RowRefused("rows.import-form", "neither a TREC run, nor rows, nor BEIR's results")
    if _MTEB_META not in document:
        return document
    subsets = {key: value for key, value in document.items() if key != _MTEB_META}
    if len(subsets) != 1:
        message = f"{len(subsets)} subsets, and a dataset is one: {', '.join(sorted(subsets))}"
        raise RowRefused("rows.import-form", message)
    splits = next(iter(subsets.values()))
    if not isinstance(splits, dict) or not isinstance(splits.get(split), dict):
        raise RowRefused("rows.import-form", f"no split {split!r}, which the protocol's labels are")
    return dict(splits[split])


def _with_missing(
    rows: Iterator[tuple[str, bytes]], ids: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Add a row for every planned query without a result, if there is one with a result: a file
    that knows none of them is the wrong file, and stays incomplete."""
    missing = dict.fromkeys(ids)
    for query, line in rows:
        missing.pop(query, None)
        yield query, line
    if len(missing) < len(ids):
        for query in missing:
            yield (
                query,
                _line({"query_id": query, "ranking": [], "latency_ms": None, "error": NO_RESULT}),
            )


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"
