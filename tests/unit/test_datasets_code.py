"""Code datasets: what loads, what is refused by which code, and what their digests depend on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.datasets import code_sources
from runner.datasets.code_pairs import CodePairs, Conflict, load_code_pairs
from runner.datasets.code_retrieval import CodeCollection, load_code_retrieval
from runner.datasets.code_text import content_key, is_text, normalised, text_of
from runner.errors import DataError
from tests.unit.code_files import (
    PAIR_COLUMNS,
    PAIRS,
    SOURCES,
    table,
    write_collection,
    write_pairs,
    write_sources,
)

Change = Callable[[Path], object]


def pairs(folder: Path) -> CodePairs:
    return load_code_pairs(folder, name="toy", root=folder)


def collection(folder: Path) -> CodeCollection:
    return load_code_retrieval(folder, name="toy", root=folder)


def put(name: str, data: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(data)


def swap(name: str, old: bytes, new: bytes) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        data = path.read_bytes()
        assert old in data
        path.write_bytes(data.replace(old, new, 1))

    return change


def with_pairs(*extra: tuple[str, ...]) -> Change:
    return put("pairs.csv", table(PAIR_COLUMNS, [*PAIRS, *extra]))


def with_source(data: bytes) -> Change:
    return lambda folder: write_sources(folder, {**SOURCES, "g2-np": data})


def link_outside(folder: Path) -> None:
    (folder / "sources" / "s0.java").unlink()
    (folder / "sources" / "s0.java").symlink_to("/etc/hostname")


PAIR_REFUSALS: dict[str, tuple[Change, str]] = {
    "no pairs": (put("pairs.csv", table(PAIR_COLUMNS, [])), "data.empty"),
    "no table": (lambda f: (f / "pairs.csv").unlink(), "data.missing"),
    "an empty table": (put("pairs.csv", b""), "data.empty"),
    "a byte-order mark": (swap("pairs.csv", b"pair_id", b"\xef\xbb\xbfpair_id"), "data.bom"),
    "a table in UTF-16": (put("pairs.csv", "pair_id\n".encode("utf-16")), "data.nul"),
    "a table in Latin-1": (swap("pairs.csv", b"t1", b"t\xe9"), "data.not-utf-8"),
    "a missing column": (swap("pairs.csv", b"label", b"lable"), "data.missing-column"),
    "a column twice": (swap("pairs.csv", b"group", b"label"), "data.bad-column"),
    "a short row": (swap("pairs.csv", b",g1", b""), "data.ragged-row"),
    "a blank line": (swap("pairs.csv", b"t2", b"\nt2"), "data.ragged-row"),
    "an open quote": (swap("pairs.csv", b"t4", b'"t4'), "data.bad-csv"),
    "an id twice": (swap("pairs.csv", b"t2", b"t1"), "data.duplicate-id"),
    "an empty id": (swap("pairs.csv", b"t2", b""), "data.empty-id"),
    "an id with a newline": (swap("pairs.csv", b"t2", b'"t\n2"'), "data.bad-id"),
    "a label of neither": (swap("pairs.csv", b",1,g1", b",2,g1"), "data.bad-label"),
    "an unknown source": (swap("pairs.csv", b"g1-L1", b"g1-L9"), "data.unknown-source"),
    "two labels": (with_pairs(("t9", "g1-orig", "g1-L1", "0", "g1")), "data.conflicting-pair"),
    "two labels, mirrored": (
        with_pairs(("t9", "g1-L1", "g1-orig", "0", "g1")),
        "data.conflicting-pair",
    ),
    "no sources": (put("files.csv", table(("id", "path", "sha256"), [])), "data.empty"),
    "a missing source": (lambda f: (f / "sources/s1.java").unlink(), "data.missing"),
    "a changed source": (put("sources/s1.java", b"changed"), "data.changed"),
    "another size": (swap("files.csv", b",29,", b",28,"), "data.changed"),
    "a parent path": (swap("files.csv", b"sources/s0", b"../sources/s0"), "data.unsafe-path"),
    "an absolute path": (swap("files.csv", b"sources/s0", b"/sources/s0"), "data.unsafe-path"),
    "a path twice": (swap("files.csv", b"s1.java", b"s0.java"), "data.duplicate-path"),
    "a backslash": (swap("files.csv", b"sources/s0", b"sources\\s0"), "data.unsafe-path"),
    "a link to elsewhere": (link_outside, "data.outside-root"),
    "no digest": (swap("files.csv", b"sha256\n", b"sha257\n"), "data.missing-column"),
    "half a digest": (lambda f: _halve(f / "files.csv"), "data.bad-digest"),
    "UTF-16 source": (with_source("int x;".encode("utf-16")), "data.not-text"),
    "NUL in a source": (with_source(b"int\0x;"), "data.not-text"),
    "50 MB source": (with_source(b"x" * 50_000_000), "data.large-source"),
}


def _halve(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-32], *lines[2:]]) + "\n")


@pytest.mark.parametrize("case", PAIR_REFUSALS)
def test_pairs_that_leave_a_doubt_are_refused(case: str, tmp_path: Path) -> None:
    change, code = PAIR_REFUSALS[case]
    folder = write_pairs(tmp_path / "toy")
    pairs(folder)
    change(folder)
    with pytest.raises(DataError) as caught:
        pairs(folder)
    assert caught.value.code == code
    assert caught.value.fix


COLLECTION_REFUSALS: dict[str, tuple[Change, str]] = {
    "an unjudged query": (
        swap("queries.csv", b"q-g1-orig,g1-orig\n", b"q-g1-orig,g1-orig\nq-x,g1-orig\n"),
        "data.unjudged-query",
    ),
    "an unknown document": (swap("qrels.csv", b"g1-L1", b"g1-L9"), "data.unknown-id"),
    "an unknown query": (swap("qrels.csv", b"q-g1-orig", b"q-g7-orig"), "data.unknown-id"),
    "an unknown file": (swap("corpus.csv", b"g1-L1,g1-L1", b"g1-L1,g1-L9"), "data.unknown-source"),
    "a grade of none": (swap("qrels.csv", b"g1-L1,1", b"g1-L1,yes"), "data.bad-grade"),
    "judged twice": (swap("qrels.csv", b"g1-np", b"g1-L1"), "data.duplicate-judgment"),
    "a document twice": (swap("corpus.csv", b"g1-np,", b"g1-L1,"), "data.duplicate-id"),
    "no corpus": (put("corpus.csv", table(("document_id", "file_id"), [])), "data.empty"),
}


@pytest.mark.parametrize("case", COLLECTION_REFUSALS)
def test_collections_that_leave_a_doubt_are_refused(case: str, tmp_path: Path) -> None:
    change, code = COLLECTION_REFUSALS[case]
    folder = write_collection(tmp_path / "toy")
    collection(folder)
    change(folder)
    with pytest.raises(DataError) as caught:
        collection(folder)
    assert caught.value.code == code


def test_repeated_pairs_are_found(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "toy")
    with_pairs(
        ("t5", "g1-orig", "g1-L1", "1", "g1"),
        ("t6", "g1-L1", "g1-orig", "1", "g1"),
        ("t7", "g2-np", "g2-np", "1", "g2"),
    )(folder)
    found = pairs(folder).repeats
    assert found.duplicates == [("t5", "t1")]
    assert found.mirrored == [("t6", "t1")]
    assert found.selves == ["t7"]


def test_pairs_of_the_same_content_under_two_labels_are_found(tmp_path: Path) -> None:
    twins = {
        **SOURCES,
        "g3-L1": SOURCES["g1-L1"],
        "g3-crlf": SOURCES["g1-np"].replace(b"\n", b"\r\n"),
    }
    folder = write_pairs(tmp_path / "toy", sources=twins)
    assert pairs(folder).content_conflicts() == []
    with_pairs(
        ("t5", "g3-L1", "g1-orig", "0", "g3"),  # t1 with its sides exchanged and a copied source
        ("t6", "g1-orig", "g3-crlf", "1", "g3"),  # t2 but for the line ends
        ("t7", "g3-L1", "g3-crlf", "1", "g3"),
        ("t8", "g1-L1", "g1-np", "1", "g3"),  # t7 over again, under the same label
    )(folder)
    assert pairs(folder).content_conflicts() == [
        Conflict("t5", "t1", "bytes"),
        Conflict("t6", "t2", "text"),
    ]


def test_odd_but_sound_sources_load_and_are_told(tmp_path: Path) -> None:
    odd = {
        **SOURCES,
        "latin": "// caf\u00e9\n".encode("latin-1"),
        "bom": b"\xef\xbb\xbfint x;\n",
        "empty": b"",
        "blank": b"\r\n \r\n",
        "a/b": b"int slash;\n",
    }
    found = pairs(write_pairs(tmp_path / "toy", sources=odd))
    assert (found.sources.empty, found.sources.undecodable) == (2, 1)
    assert found.sources.text("latin") == "// caf\n"
    assert found.sources.text("bom") == "\ufeffint x;\n"


def test_a_corpus_of_duplicates_loads_and_is_counted(tmp_path: Path) -> None:
    twins = dict.fromkeys(SOURCES, b"int same;\n")
    found = collection(write_collection(tmp_path / "toy", twins))
    assert found.sources.duplicates(found.documents.values()) == len(found.documents) - 1


def test_the_order_of_rows_is_no_content_and_bytes_of_sources_are(tmp_path: Path) -> None:
    first = pairs(write_pairs(tmp_path / "a"))
    shuffled = dict(reversed(list(SOURCES.items())))
    again = write_pairs(tmp_path / "b", reversed(PAIRS), shuffled)
    rows = (again / "files.csv").read_bytes().splitlines(keepends=True)
    # The same paths for the same ids, in another order.
    original = (tmp_path / "a" / "files.csv").read_bytes().splitlines(keepends=True)
    (again / "files.csv").write_bytes(b"".join([original[0], *reversed(original[1:])]))
    for path in (tmp_path / "a" / "sources").iterdir():
        (again / "sources" / path.name).write_bytes(path.read_bytes())
    assert rows
    second = pairs(again)
    assert second.files == first.files
    assert second.labels_sha256() == first.labels_sha256()
    assert second.sources.payload() == first.sources.payload()
    crlf = {
        name: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for name, data in SOURCES.items()
    }
    twin = pairs(write_pairs(tmp_path / "c", sources=crlf))
    assert twin.sources.payload() != first.sources.payload()
    assert twin.files[0] != first.files[0]
    assert {s.key for s in twin.sources.by_id.values()} == {
        s.key for s in first.sources.by_id.values()
    }


def test_a_source_that_changes_while_it_is_used_is_refused(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "toy")
    found = pairs(folder)
    (folder / "sources" / "s0.java").write_bytes(b"changed")
    with pytest.raises(DataError, match=r"files\.csv says"):
        found.sources.text("g1-orig")


def test_text_and_its_normal_form() -> None:
    assert not is_text(b"\xff\xfea\0")
    assert not is_text(b"a\0")
    assert text_of(b"a\xffb\r\n") == "ab\r\n"
    assert normalised(" a \r\n\tb\t\r") == "a\n\tb"
    assert content_key(normalised("a\r\n")) == content_key(normalised("a"))
    assert content_key("a b") != content_key("ab")


def test_loading_sources_costs_no_more_a_file_where_there_are_five_times_as_many(
    tmp_path: Path,
) -> None:
    """Growth, not speed; ``bench/files.py`` measures 100,000 files."""

    def spent(count: int) -> float:
        folder = tmp_path / str(count)
        many = {f"s{number}": b"int x = %d;\n" % number for number in range(count)}
        write_sources(folder, many)
        times = []
        for _ in range(2):
            begun = time.process_time()
            assert len(code_sources.load_sources(folder, folder).by_id) == count
            times.append(time.process_time() - begun)
        return min(times)

    assert spent(5_000) < 2.5 * 5 * spent(1_000)  # five times as much would be quadratic
