"""The BEIR loader: what it returns, and that it refuses what two readers could read apart."""

# ruff: noqa: RUF001 - letters of other scripts are the point of some texts
from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.datasets.beir import Document, RetrievalDataset, Shape, load_beir
from runner.errors import DataError
from tests.unit.beir_files import DOCUMENTS, QRELS, QUERIES, jsonl, write_beir

HEADER = "query-id\tcorpus-id\tscore\n"


def load(folder: Path, **options: Any) -> RetrievalDataset:
    return load_beir(folder, name="toy", qrels_split="test", **options)


def refused(folder: Path, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        load(folder, **options)
    assert caught.value.fix
    return caught.value


def line_of(error: DataError) -> tuple[str, int | None]:
    assert error.where is not None
    assert error.where.file is not None
    return Path(error.where.file).name, error.where.line


def test_a_collection_is_ids_judged_queries_labels_and_digests(tmp_path: Path) -> None:
    dataset = load(write_beir(tmp_path))
    assert list(dataset.documents.items()) == [("d1", 0), ("d2", 1), ("d3", 2), ("d4", 3)]
    assert dataset.queries == {
        "q1": "how is tea made",
        "q2": "how is coffee made",
        "q4": "what is dry",
    }
    assert dataset.qrels == {"q1": {"d1": 2, "d3": 1}, "q2": {"d2": 1}, "q4": {"d3": 0}}
    assert (dataset.document_count, dataset.judgment_count, dataset.positive_count) == (4, 4, 3)
    assert dataset.queries_without_positives == ("q4",)
    for file in dataset.files:
        data = (tmp_path / file.name).read_bytes()
        assert (file.sha256, file.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert [file.name for file in dataset.files] == [
        "corpus.jsonl",
        "queries.jsonl",
        "qrels/test.tsv",
    ]


def test_payload_digests_are_those_of_the_lines_they_stand_for(tmp_path: Path) -> None:
    payload = load(write_beir(tmp_path)).payload
    corpus = (
        '{"_id":"d1","title":"Tea","text":"Green tea is steeped."}\n'
        '{"_id":"d2","title":"","text":"Coffee is brewed."}\n'
        '{"_id":"d3","title":"Water","text":""}\n'
        '{"_id":"d4","title":"","text":""}\n'
    )
    queries = (
        '{"_id":"q1","text":"how is tea made"}\n'
        '{"_id":"q2","text":"how is coffee made"}\n'
        '{"_id":"q4","text":"what is dry"}\n'
    )
    labels = "q1\td1\t2\nq1\td3\t1\nq2\td2\t1\nq4\td3\t0\n"
    assert payload.corpus == hashlib.sha256(corpus.encode()).hexdigest()
    assert payload.queries == hashlib.sha256(queries.encode()).hexdigest()
    assert payload.labels == hashlib.sha256(labels.encode()).hexdigest()


def test_an_absent_title_is_an_empty_one(tmp_path: Path) -> None:
    write_beir(tmp_path, documents=[{"_id": i, "text": "x"} for i in ("d1", "d2", "d3")])
    assert next(load(tmp_path).iter_documents()) == Document("d1", "", "x")


@pytest.mark.parametrize(
    "qrels",
    [
        HEADER.replace("\n", "\r\n") + "q1\td1\t2\r\nq1\td3\t1\r\nq2\td2\t1\r\nq4\td3\t0\r\n",
        "q1\td1\t2\nq1\td3\t1\nq2\td2\t1\nq4\td3\t0",
        "q1 0 d1 2\nq1 0 d3 1\nq2 0 d2 1\nq4 0 d3 0\n",
        "q1\t0\td1\t2\r\nq1\tQ0\td3\t1\r\nq2\t0\td2\t1\r\nq4\t0\td3\t0\r\n",
        "Query-ID\tCorpus-ID\tScore\nq4\td3\t0\nq2\td2\t1\nq1\td3\t1\nq1\td1\t2\n",
    ],
    ids=["crlf", "no-header-no-final-lf", "trec", "trec-tabs", "other-row-order"],
)
def test_published_spellings_of_the_same_labels(tmp_path: Path, qrels: str) -> None:
    plain = load(write_beir(tmp_path / "a"))
    other = load(write_beir(tmp_path / "b", qrels=qrels))
    assert other.qrels == plain.qrels
    assert other.payload == plain.payload
    assert other.files[2] != plain.files[2]


def test_ids_stay_strings(tmp_path: Path) -> None:
    write_beir(
        tmp_path,
        documents=[{"_id": i, "title": "", "text": "x"} for i in ("01", "1", "1.0", "1e3", "-0")],
        queries=[{"_id": i, "text": "x"} for i in ("7", "07")],
        qrels="7\t1\t1\n07\t01\t1\n7\t1e3\t1\n",
    )
    dataset = load(tmp_path)
    assert list(dataset.documents) == ["01", "1", "1.0", "1e3", "-0"]
    assert dataset.qrels == {"7": {"1": 1, "1e3": 1}, "07": {"01": 1}}


def test_one_document_and_texts_of_every_script(tmp_path: Path) -> None:
    text = "שלום עולם \u202eمرحبا\u202c 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🫖 \u2028 nul \x00 tab \t end"
    write_beir(
        tmp_path,
        documents=[{"_id": "מסמך-𝟙", "title": "𐍈", "text": text}],
        queries=[{"_id": "שאלה", "text": "🫖"}],
        qrels="שאלה\tמסמך-𝟙\t1\n",
    )
    dataset = load(tmp_path)
    assert dataset.document_count == 1
    assert list(dataset.iter_documents()) == [Document("מסמך-𝟙", "𐍈", text)]
    assert dataset.qrels == {"שאלה": {"מסמך-𝟙": 1}}


def test_a_document_of_five_megabytes(tmp_path: Path) -> None:
    text = "long " * 1_000_000
    write_beir(
        tmp_path,
        documents=[{"_id": "d1", "title": "", "text": text}],
        qrels="q1\td1\t1\n",
    )
    assert next(load(tmp_path).iter_documents()).text == text


def corpus_with(line: bytes) -> bytes:
    return jsonl(DOCUMENTS[:1]) + line + b"\n" + jsonl(DOCUMENTS[1:])


BAD_CORPUS_LINES = [
    (b'{"_id": "x", "text": "a", "text": "b"}', "data.duplicate-key"),
    (b'{"_id": "x", "text": "a", "metadata": {"k": 1, "k": 2}}', "data.duplicate-key"),
    (b'{"_id": "x", "text": "a", "metadata": NaN}', "data.bad-number"),
    (b'{"_id": "x", "text": "a", "metadata": -Infinity}', "data.bad-number"),
    (b'{"_id": "x", "text": "a", "metadata": 1e999}', "data.bad-number"),
    (b'{"_id": "x", "text": "a"', "data.bad-json"),
    (b'{"_id": "x", "text": "a"} {}', "data.bad-json"),
    (b"{'_id': 'x', 'text': 'a'}", "data.bad-json"),
    (b'{"_id": "x", "text": "tab\there"}', "data.bad-json"),
    (b'{"_id": "x", "text": ' + b"[" * 100_000 + b"}", "data.bad-json"),
    (b'{"_id": "x", "text": "a", "metadata": ' + b"9" * 5000 + b"}", "data.bad-json"),
    (b'["x", "a"]', "data.not-an-object"),
    (b"null", "data.not-an-object"),
    (b"", "data.blank-line"),
    (b" \t ", "data.blank-line"),
    (b"\r", "data.blank-line"),
    (b'{"_id": "x", "text": "caf\xe9"}', "data.not-utf-8"),
    (b'{"_id": "x", "text": "\xed\xa0\x80"}', "data.not-utf-8"),
    (b'{"_id": "x", "text": "\\ud800"}', "data.lone-surrogate"),
    (b'{"_id": "x\\udfff", "text": "a"}', "data.lone-surrogate"),
    (b'{"_id": "d1", "text": "again"}', "data.duplicate-id"),
    (b'{"_id": "", "text": "a"}', "data.empty-id"),
    (b'{"_id": "  ", "text": "a"}', "data.empty-id"),
    (b'{"_id": 7, "text": "a"}', "data.bad-field"),
    (b'{"_id": null, "text": "a"}', "data.bad-field"),
    (b'{"text": "a"}', "data.bad-field"),
    (b'{"_id": "x"}', "data.bad-field"),
    (b'{"_id": "x", "text": ["a"]}', "data.bad-field"),
    (b'{"_id": "x", "text": "a", "title": null}', "data.bad-field"),
    (b'{"_id": "a\\nb", "text": "a"}', "data.bad-id"),
    (b'{"_id": "a\\u0000", "text": "a"}', "data.bad-id"),
    (b'{"_id": "a\\u0085", "text": "a"}', "data.bad-id"),
    (b'{"_id": "a\\u2028b", "text": "a"}', "data.bad-id"),
    (b'{"_id": "' + b"i" * 513 + b'", "text": "a"}', "data.long-id"),
]


@pytest.mark.parametrize(("line", "code"), BAD_CORPUS_LINES, ids=lambda value: str(value)[:40])
def test_a_bad_line_of_the_corpus_is_refused_by_line(
    tmp_path: Path, line: bytes, code: str
) -> None:
    error = refused(write_beir(tmp_path, documents=corpus_with(line)))
    assert (error.code, line_of(error)) == (code, ("corpus.jsonl", 2))


def test_an_id_may_have_512_characters(tmp_path: Path) -> None:
    documents = corpus_with(json.dumps({"_id": "é" * 512, "text": ""}).encode())
    assert "é" * 512 in load(write_beir(tmp_path, documents=documents)).documents


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_byte_order_mark_is_refused_in_every_file(tmp_path: Path, name: str) -> None:
    path = write_beir(tmp_path) / name
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    error = refused(tmp_path)
    assert (error.code, line_of(error)) == ("data.bom", (path.name, 1))


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_another_encoding_is_refused_in_every_file(tmp_path: Path, name: str) -> None:
    path = write_beir(tmp_path) / name
    path.write_bytes(path.read_text().encode("utf-16"))
    assert refused(tmp_path).code == "data.not-utf-8"


def test_a_line_without_end_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.datasets.lines.MAX_LINE_BYTES", 1000)
    documents = corpus_with(json.dumps({"_id": "x", "text": "y" * 2000}).encode())
    error = refused(write_beir(tmp_path, documents=documents))
    assert (error.code, line_of(error)) == ("data.long-line", ("corpus.jsonl", 2))


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"_id": "q9", "text": ""}, "data.empty-query"),
        ({"_id": "q9", "text": " \u00a0\n"}, "data.empty-query"),
        ({"_id": "q1", "text": "again"}, "data.duplicate-id"),
        ({"_id": "q9"}, "data.bad-field"),
        ({"_id": 9, "text": "x"}, "data.bad-field"),
    ],
)
def test_a_bad_query_is_refused_by_line(tmp_path: Path, row: dict[str, object], code: str) -> None:
    error = refused(write_beir(tmp_path, queries=[*QUERIES, row]))
    assert (error.code, line_of(error)) == (code, ("queries.jsonl", 5))


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("q1\td2\t1.0", "data.bad-grade"),
        ("q1\td2\t", "data.bad-grade"),
        ("q1\td2\t1_0", "data.bad-grade"),
        ("q1\td2\t+1", "data.bad-grade"),
        ("q1\td2\t٣", "data.bad-grade"),
        ("q1\td2\t 1", "data.bad-grade"),
        ("q1\td2\t1\r", "data.bad-grade"),
        ("q1\td2\t9999999999", "data.bad-grade"),
        ("q1\td2\tnan", "data.bad-grade"),
        ("q1\td1\t2", "data.duplicate-judgment"),
        ("q1\td1\t1", "data.conflicting-judgment"),
        ("q1\td9\t1", "data.unknown-document"),
        ("q9\td1\t1", "data.unknown-query"),
        ("\td1\t1", "data.empty-id"),
        ("q1\t\t1", "data.empty-id"),
        ("q1\td1", "data.bad-columns"),
        ("q1\t0\td1\t1", "data.bad-columns"),
        ("q1 d2 1", "data.bad-columns"),
        ("", "data.blank-line"),
        ("query-id\tcorpus-id\tscore", "data.bad-grade"),
    ],
)
def test_a_bad_judgment_is_refused_by_line(tmp_path: Path, row: str, code: str) -> None:
    end = "\r\n" if row.endswith("\r") else "\n"
    error = refused(write_beir(tmp_path, qrels=QRELS + row + end))
    assert (error.code, line_of(error)) == (code, ("test.tsv", 6))


@pytest.mark.parametrize(
    ("part", "data", "code"),
    [
        ("documents", b"", "data.empty"),
        ("queries", b"", "data.unknown-query"),
        ("qrels", b"", "data.empty"),
        ("qrels", HEADER.encode(), "data.empty"),
        ("qrels", b"one\ttwo\n", "data.bad-columns"),
        ("qrels", b"q1 d1 1\n", "data.bad-columns"),
        ("qrels", b"a\tb\tc\td\te\n", "data.bad-columns"),
    ],
)
def test_an_empty_or_shapeless_file_is_refused(
    tmp_path: Path, part: str, data: bytes, code: str
) -> None:
    options: dict[str, Any] = {part: data}
    assert refused(write_beir(tmp_path, **options)).code == code


@pytest.mark.parametrize(
    "shape",
    [Shape(documents=5), Shape(documents=4, queries=4), Shape(queries=3, judgments=3)],
)
def test_another_shape_than_declared_is_refused(tmp_path: Path, shape: Shape) -> None:
    write_beir(tmp_path)
    assert refused(tmp_path, shape=shape).code == "data.wrong-shape"
    load(tmp_path, shape=Shape(documents=4, queries=3, judgments=4))


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_refused_with_the_way_to_name_the_data_root(
    tmp_path: Path, name: str
) -> None:
    (write_beir(tmp_path) / name).unlink()
    error = refused(tmp_path)
    assert (error.code, line_of(error)[0]) == ("data.missing", Path(name).name)
    assert "--data-root" in error.fix
    assert "DATA_ROOT" in error.fix


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_link_may_not_leave_the_data_root(tmp_path: Path, name: str) -> None:
    folder = write_beir(tmp_path / "root" / "toy")
    outside = tmp_path / "outside"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    assert refused(folder, root=tmp_path / "root").code == "data.outside-root"
    assert load(folder, root=tmp_path).document_count == 4


def test_a_linked_folder_may_not_leave_the_data_root(tmp_path: Path) -> None:
    write_beir(tmp_path / "elsewhere")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "toy").symlink_to(tmp_path / "elsewhere")
    error = refused(tmp_path / "root" / "toy", root=tmp_path / "root")
    assert error.code == "data.outside-root"


def test_a_fifo_a_folder_and_a_loop_are_no_files(tmp_path: Path) -> None:
    path = write_beir(tmp_path) / "corpus.jsonl"
    path.unlink()
    os.mkfifo(path)
    assert refused(tmp_path).code == "data.not-a-file"
    path.unlink()
    path.mkdir()
    assert refused(tmp_path).code == "data.not-a-file"
    path.rmdir()
    path.symlink_to(path)
    assert refused(tmp_path).code == "data.missing"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", "A", "a\n", "-a", "é", "a" * 31, "a\x00"]
)
def test_a_name_that_is_no_plain_path_segment_is_refused(tmp_path: Path, name: str) -> None:
    write_beir(tmp_path)
    with pytest.raises(DataError, match="bad-name"):
        load_beir(tmp_path, name=name, qrels_split="test")
    with pytest.raises(DataError, match="bad-name"):
        load_beir(tmp_path, name="toy", qrels_split=name)


def test_a_corpus_that_changes_while_it_is_in_use_is_refused(tmp_path: Path) -> None:
    dataset = load(write_beir(tmp_path))
    assert len(list(dataset.iter_documents())) == 4
    (tmp_path / "corpus.jsonl").write_bytes(jsonl(reversed(DOCUMENTS)))
    with pytest.raises(DataError) as caught:
        list(dataset.iter_documents())
    assert caught.value.code == "data.changed"
    assert dataset.files[0].sha256 in caught.value.message


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=20), st.text(max_size=50), st.text(max_size=50)),
        max_size=5,
    )
)
def test_what_is_accepted_is_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    documents = [{"_id": i, "title": t, "text": x} for i, t, x in rows]
    write_beir(folder, documents=[*DOCUMENTS, *documents])
    try:
        dataset = load(folder)
    except DataError as error:
        assert error.code in {
            "data.bad-id",
            "data.empty-id",
            "data.duplicate-id",
        }
    else:
        assert list(dataset.iter_documents())[4:] == [Document(*row) for row in rows]


@given(st.binary(max_size=200))
def test_no_bytes_get_past_as_anything_but_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    for part in ("documents", "queries", "qrels"):
        options: dict[str, Any] = {part: data}
        with pytest.raises(DataError):
            load(write_beir(folder, **options))
