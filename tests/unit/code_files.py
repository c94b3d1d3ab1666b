"""Small code datasets on disk, right in every respect until a test changes one."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

SOURCES: Mapping[str, bytes] = {
    "g1-orig": b"int main() { return a + b; }\n",
    "g1-L1": b"int main() {\r\n  return a + c;\r\n}\r\n",
    "g1-np": b"void other(int x) { print(x); }\n",
    "g2-orig": b"class A { int f; }\n",
    "g2-L1": b"class B { int f; }\n",
    "g2-np": b"for (;;) { }\n",
}
PAIRS: Sequence[tuple[str, str, str, str, str]] = (
    ("t1", "g1-orig", "g1-L1", "1", "g1"),
    ("t2", "g1-orig", "g1-np", "0", "g1"),
    ("t3", "g2-orig", "g2-L1", "1", "g2"),
    ("t4", "g2-orig", "g2-np", "0", "g2"),
)
PAIR_COLUMNS = ("pair_id", "left_id", "right_id", "label", "group")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], end: str = "\n") -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows([columns, *rows])
    return text.getvalue().encode("utf-8")


def write_sources(folder: Path, sources: Mapping[str, bytes]) -> None:
    (folder / "sources").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (identity, data) in enumerate(sources.items()):
        path = f"sources/s{number}.java"
        (folder / path).write_bytes(data)
        rows.append((identity, path, "java", str(len(data)), hashlib.sha256(data).hexdigest()))
    columns = ("id", "path", "language", "bytes", "sha256")
    (folder / "files.csv").write_bytes(table(columns, rows))


def write_pairs(
    folder: Path,
    pairs: Iterable[Sequence[str]] = PAIRS,
    sources: Mapping[str, bytes] = SOURCES,
    columns: Sequence[str] = PAIR_COLUMNS,
) -> Path:
    write_sources(folder, sources)
    (folder / "pairs.csv").write_bytes(table(columns, pairs))
    return folder


def write_collection(folder: Path, sources: Mapping[str, bytes] = SOURCES) -> Path:
    write_sources(folder, sources)
    documents = [name for name in sources if "orig" not in name]
    queries = [name for name in sources if "orig" in name]
    rows = [(f"q-{name}", name) for name in queries]
    (folder / "queries.csv").write_bytes(table(("query_id", "file_id"), rows))
    rows = [(name, name) for name in documents]
    (folder / "corpus.csv").write_bytes(table(("document_id", "file_id"), rows))
    qrels = [
        (f"q-{query}", name, str(int("-L" in name)))
        for query in queries
        for name in documents
        if name.split("-")[0] == query.split("-")[0]
    ]
    (folder / "qrels.csv").write_bytes(table(("query_id", "document_id", "relevance"), qrels))
    return folder


VALIDATION_SOURCES: Mapping[str, bytes] = {
    "v-orig": b"while (true) { wait(); }\n",
    "v-L1": b"while (true) { sleep(); }\n",
    "v-np": b"import x.y;\n",
}
VALIDATION_PAIRS: Sequence[tuple[str, str, str, str, str]] = (
    ("v1", "v-orig", "v-L1", "1", "g9"),
    ("v2", "v-orig", "v-np", "0", "g9"),
)


def write_validation(
    folder: Path,
    pairs: Iterable[Sequence[str]] = VALIDATION_PAIRS,
    sources: Mapping[str, bytes] = VALIDATION_SOURCES,
) -> None:
    write_pairs(folder / "validation", pairs, sources)


FREEZE = """\
schema: sealbench/freeze/v1
benchmark: toy-v1
version: "1.0.0"
title: Toy
description: Two assignments.
category: plagiarism
metrics: [average_precision, auroc, f1, precision, recall, accuracy, map, mrr, ndcg_at_3]
primary_metric: average_precision
top_k: 3
rules:
  queries_without_positives: count_as_zero
  split_policy: {SPLIT}
  threshold_policy: {THRESHOLD}
budget: {wall: 1m, grace: 5s, memory: 512MiB}
datasets:
  - name: toy-pair
    task: pair
    format: code-pairs
    path: toy/pair
    PAIR_EXTRA
    similarity_options: {code_language: java}
    source_url: https://example.org/toy
    source_revision: own:1
    source_checksum: PAIR_SUM
    licence: CC0-1.0
    citation: none
    redistribution: free
    selection: all pairs
  - name: toy-retrieval
    task: retrieval
    format: code-retrieval
    path: toy/retrieval
    similarity_options: {code_language: java}
    source_url: https://example.org/toy
    source_revision: own:1
    source_checksum: RETRIEVAL_SUM
    licence: CC0-1.0
    citation: none
    redistribution: free
    selection: all queries
"""
FIXED = "{type: fixed, value: 0.5}"
FITTED = "{type: validation_f1}"
DISJOINT = "{type: group_disjoint, description: by assignment, group_fields: [group]}"
CONTENT = "{type: content_disjoint, description: no groups}"


def write_toy(root: Path, *, validation: bool = False) -> Path:
    """Write both datasets below a data root."""
    pairs = write_pairs(root / "toy" / "pair")
    if validation:
        write_validation(pairs)
    write_collection(root / "toy" / "retrieval")
    return root


def checksum(folder: Path) -> str:
    """What `sha256sum` of all files, sorted by path and hashed again, says."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in sorted(folder.rglob("*"), key=lambda path: str(path.relative_to(folder)))
        if path.is_file()
    ]
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def freeze_text(
    root: Path, *, split: str = DISJOINT, threshold: str = FIXED, extra: str = "split: whole"
) -> str:
    """Return a freeze manifest for the toy datasets as they lie there."""
    filled = {
        "{SPLIT}": split,
        "{THRESHOLD}": threshold,
        "PAIR_EXTRA": extra,
        "PAIR_SUM": checksum(root / "toy" / "pair"),
        "RETRIEVAL_SUM": checksum(root / "toy" / "retrieval"),
    }
    text = FREEZE
    for key, value in filled.items():
        text = text.replace(key, value)
    return text
