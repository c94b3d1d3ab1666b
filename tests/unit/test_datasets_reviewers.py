"""Expertise data: both formats give one dataset; what two readers could read apart is refused;
and nothing that leaves names a person."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from runner.datasets.reviewers import ExpertiseDataset
from runner.errors import DataError, ProtocolError
from runner.tasks import expertise
from tests.unit.reviewer_files import (
    PEOPLE,
    PROFILES,
    RATINGS,
    SUBMISSIONS,
    evaluations,
    openreview_files,
    write_compact,
    write_counts,
    write_openreview,
)

COMPACT = {"format": "reviewer-compact", "texts": "toy", "ratings": "toy", "version": "v_1"}
PACKED = {**COMPACT, "format": "openreview", "archive": "versions.tar.xz"}
UNPACKED = {**COMPACT, "format": "openreview"}


def load(root: Path, source: dict[str, Any] = COMPACT, **more: Any) -> ExpertiseDataset:
    return expertise.load("toy-1", {**source, **more}, root, root)


def refused(root: Path, source: dict[str, Any] = COMPACT, **more: Any) -> str:
    """Return the code of a refusal; its text must name no person."""
    with pytest.raises(DataError) as caught:
        load(root, source, **more)
    said = f"{caught.value} {caught.value.fix} {caught.value.where}"
    assert not any(person in said for person in PEOPLE), said
    return caught.value.code


def test_three_forms_are_one_dataset(tmp_path: Path) -> None:
    forms = [
        load(write_compact(tmp_path / "plain")),
        load(write_compact(tmp_path / "gz", packed=True)),
        load(write_openreview(tmp_path / "tar"), PACKED),
        load(write_openreview(tmp_path / "folders", packed=False), UNPACKED),
    ]
    first = forms[0]
    for other in forms[1:]:
        assert other.payload == first.payload
        assert other.profiles == first.profiles
        assert other.ratings == first.ratings
        assert other.submissions == first.submissions
        assert {k: v[:2] for k, v in other.papers.items()} == {
            k: v[:2] for k, v in first.papers.items()
        }
    names = [[file.name for file in one.files] for one in forms]
    assert names == [
        ["toy/evaluations.csv", "toy/papers.jsonl", "toy/datasets.json"],
        ["toy/evaluations.csv", "toy/papers.jsonl.gz", "toy/datasets.json.gz"],
        ["toy/evaluations.csv", "toy/versions.tar.xz"],
        ["toy/evaluations.csv", "toy/v_1/submissions.json", "toy/v_1/archives"],
    ]


def test_what_is_loaded(tmp_path: Path) -> None:
    dataset = load(write_compact(tmp_path))
    assert expertise.content_of(dataset)["counts"] == {
        "reviewers": 4, "submissions": 6, "profile_papers": 6, "ratings": 11, "pairs": 10,
    }  # fmt: skip
    assert sorted(dataset.profiles) == list(dataset.profiles) == ["r1", "r2", "r3", "r4"]
    people = {alias: person for person, alias in dataset.real_reviewers.items()}
    papers = {alias: paper for paper, alias in dataset.real_submissions.items()}
    own = {alias: paper for paper, alias in dataset.real_profile_papers.items()}
    for alias, rated in dataset.ratings.items():
        real = {paper: float(value) for paper, value in RATINGS[people[alias]].items()}
        assert {papers[paper]: value for paper, value in rated.items()} == real
        assert list(rated) == sorted(rated)
        profile = PROFILES["v_1"][people[alias]]
        assert [own[paper] for paper in dataset.profiles[alias]] == profile
    # One paper that is in a profile and a submission has two ids.
    assert dataset.real_submissions["s1"] != dataset.real_profile_papers["s1"]


def test_versions_number_people_and_submissions_alike(tmp_path: Path) -> None:
    root = write_compact(tmp_path)
    one, two = load(root), load(root, version="v_2")
    assert one.real_reviewers == two.real_reviewers
    assert one.real_submissions == two.real_submissions
    assert one.profiles != two.profiles
    assert one.payload.labels == two.payload.labels
    assert one.payload.profiles != two.payload.profiles


def test_opaque_ids_do_not_follow_the_files_order(tmp_path: Path) -> None:
    dataset = load(write_compact(tmp_path))
    assert list(dataset.real_submissions) != list(SUBMISSIONS)
    assert sorted(dataset.real_submissions.values()) == list(dataset.submissions)


def test_what_the_protocol_holds_names_nobody(tmp_path: Path) -> None:
    for folder, source in (("a", COMPACT), ("b", PACKED), ("c", UNPACKED)):
        make = write_compact if source is COMPACT else write_openreview
        root = (
            make(tmp_path / folder)
            if source is not UNPACKED
            else write_openreview(tmp_path / folder, packed=False)
        )
        text = json.dumps(expertise.content_of(load(root, source)))
        assert not any(person in text for person in PEOPLE)
        assert not any(person in repr(load(root, source)) for person in PEOPLE)


RATED = evaluations()
BAD_TABLES = {
    "data.not-tab-separated": RATED.replace("\t", ","),
    "data.bad-header": RATED.replace("ParticipantID", "Reviewer"),
    "data.bad-columns": RATED.replace("\t5.0\t4.0\t1.5\t\n", "\t5.0\t4.0\t1.5\n"),
    "data.gap-in-ratings": RATED.replace(
        "\ts2\ts4\t\t\t2.0\t4.25\t\t\n", "\ts2\t\ts4\t\t2.0\t\t4.25\t\n"
    ),
    "data.half-rating": RATED.replace("\t2.0\t4.25\t", "\t2.0\t\t"),
    "data.bad-rating": RATED.replace("4.25", "4.3"),
    "data.duplicate-rating": RATED.replace("\ts1\ts2\ts3\t", "\ts1\ts2\ts1\t"),
    "data.duplicate-reviewer": RATED.replace(PEOPLE[1], PEOPLE[0]),
    "data.no-ratings": RATED + PEOPLE[0] + "9" + "\t" * 8 + "\n",
    "data.bad-id": RATED.replace(PEOPLE[2], ""),
    "data.empty": RATED.splitlines()[0] + "\n",
    "data.bom": "\ufeff" + RATED,
    "data.blank-line": RATED + "\n",
}


@pytest.mark.parametrize("code", BAD_TABLES)
def test_ratings_that_two_readers_could_read_apart(tmp_path: Path, code: str) -> None:
    table = BAD_TABLES[code]
    assert table != RATED
    assert refused(write_compact(tmp_path, table=table)) == code


@pytest.mark.parametrize("value", ["NaN", "nan", "None", "0", "0.75", "5.25", "-1", "1e0", "٣", ""])
def test_what_is_no_rating(tmp_path: Path, value: str) -> None:
    table = RATED.replace("\t4.25\t", f"\t{value}\t")
    code = refused(write_compact(tmp_path, table=table))
    if value.lower() in ("nan", "none"):
        assert code == "data.gap-in-ratings"
    else:
        assert code == ("data.half-rating" if not value else "data.bad-rating")


def change(root: Path, name: str, edit: Any) -> Path:
    """Rewrite a JSON file of the compact form."""
    path = root / "toy" / name
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    return root


def _drop(key: str) -> Any:
    return lambda document: document["profiles"]["v_1"].pop(key)


def _profile(papers: list[str]) -> Any:
    return lambda document: document["profiles"]["v_1"].update({PEOPLE[0]: papers})


BAD_SETS: list[tuple[Any, str]] = [
    (_drop(PEOPLE[0]), "data.absent"),  # a reviewer without a profile
    (lambda d: d["profiles"]["v_1"].update({"900000099": ["p1"]}), "data.no-ratings"),
    (_profile([]), "data.empty-profile"),
    (_profile(["p1", "p1"]), "data.duplicate-paper"),
    (_profile(["p2", "p1"]), "data.profile-order"),
    (_profile(["p1", "unheard-of"]), "data.unknown-paper"),
    (_profile([1]), "data.bad-field"),  # type: ignore[list-item]  # what is no id
    (lambda d: d["submissions"].append("s1"), "data.duplicate-paper"),
    (lambda d: d["submissions"].append("unheard-of"), "data.unknown-paper"),
    (lambda d: d["submissions"].remove("s4"), "data.absent"),  # papers that are no submissions
    (lambda d: d.pop("submissions"), "data.bad-field"),
    (lambda d: d.pop("profiles"), "data.bad-field"),
    (lambda d: d["profiles"].update({"v_1": {}}), "data.empty"),
]


@pytest.mark.parametrize(("edit", "code"), BAD_SETS)
def test_profiles_that_do_not_fit(tmp_path: Path, edit: Any, code: str) -> None:
    assert refused(change(write_compact(tmp_path), "datasets.json", edit)) == code


def test_an_unknown_version_is_told_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="did you mean 'v_2'") as caught:
        load(write_compact(tmp_path), version="v_l")
    assert "v_1, v_2" in caught.value.fix


def test_absent_reviewers_and_papers_are_declared_and_left_out(tmp_path: Path) -> None:
    root = write_compact(tmp_path)
    change(root, "datasets.json", _drop(PEOPLE[3]))
    change(root, "datasets.json", lambda d: d["submissions"].remove("s3"))
    absent = {"reviewers": 1, "papers": 1}
    dataset = load(root, absent=absent, expect={"reviewers": 3, "submissions": 5, "ratings": 6})
    assert dataset.rating_count == 6
    assert expertise.content_of(dataset)["absent"] == absent
    assert refused(root, absent={"reviewers": 1}) == "data.absent"
    assert refused(root, absent=absent, expect={"ratings": 7}) == "data.wrong-shape"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"id": "p1", "title": "a", "abstract": "b"}', "data.duplicate-id"),
        ('{"id": "x", "title": " ", "abstract": ""}', "data.empty-text"),
        ('{"id": "x", "title": "a"}', "data.bad-field"),
        ('{"id": "x", "title": null, "abstract": "b"}', "data.bad-field"),
        ('{"id": "x", "title": "a", "abstract": "b", "year": "2020"}', "data.bad-field"),
        ('{"id": "", "title": "a", "abstract": "b"}', "data.empty-id"),
        ('{"id": "x", "title": "a", "abstract": "b", "id": "y"}', "data.duplicate-key"),
        ('{"id": "x", "title": "a", "abstract": "\\ud800"}', "data.lone-surrogate"),
        ("[]", "data.not-an-object"),
        ("", "data.blank-line"),
    ],
)
def test_papers_that_are_malformed(tmp_path: Path, line: str, code: str) -> None:
    root = write_compact(tmp_path)
    with (root / "toy" / "papers.jsonl").open("a") as stream:
        stream.write(line + "\n")
    assert refused(root) == code


def test_a_persons_id_that_stands_twice_is_not_repeated(tmp_path: Path) -> None:
    root = write_compact(tmp_path)
    path = root / "toy" / "datasets.json"
    path.write_text(path.read_text().replace(f'"{PEOPLE[1]}"', f'"{PEOPLE[0]}"'))
    assert refused(root) == "data.duplicate-key"


def test_damaged_gzip_is_named(tmp_path: Path) -> None:
    root = write_compact(tmp_path, packed=True)
    path = root / "toy" / "papers.jsonl.gz"
    good = path.read_bytes()
    for bad in (good[:-9], good[:40] + bytes(20) + good[60:], b"plain text\n"):
        path.write_bytes(bad)
        assert refused(root) == "data.bad-gzip"


def test_word_counts_belong_to_the_papers(tmp_path: Path) -> None:
    root = write_compact(tmp_path)
    write_counts(root)
    dataset = load(root)
    assert dataset.word_counts == root / "toy" / "wordcounts.jsonl.gz"
    assert [file.name for file in dataset.files][-1] == "toy/wordcounts.jsonl.gz"
    path = root / "toy" / "wordcounts.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    for bad, code in (
        (lines[1:], "data.word-counts"),
        ([*lines, lines[0]], "data.duplicate-id"),
        ([*lines[1:], lines[0].replace(b"3", b"0")], "data.bad-field"),
        ([*lines[1:], lines[0].replace(b"3", b"1.5")], "data.bad-field"),
    ):
        path.write_bytes(gzip.compress(b"".join(bad)))
        assert refused(root) == code


def archive(root: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(root / "toy" / "versions.tar.xz", "w:xz") as made:
        for path, data in files.items():
            info = tarfile.TarInfo(f"v_1/{path}")
            info.size, info.type, info.linkname = len(data), kind, "elsewhere"
            made.addfile(info, io.BytesIO(data))
    return root


def test_archives_that_are_not_what_they_seem(tmp_path: Path) -> None:
    root = write_openreview(tmp_path)
    files = openreview_files("v_1")
    assert refused(archive(root, {}), PACKED) == "data.missing"
    only = {"submissions.json": files["submissions.json"]}
    assert refused(archive(root, only), PACKED) == "data.empty"
    assert refused(archive(root, files, tarfile.SYMTYPE), PACKED) == "data.bad-archive"
    path = root / "toy" / "versions.tar.xz"
    path.write_bytes(path.read_bytes()[:100])
    assert refused(root, PACKED) == "data.bad-archive"
    path.write_bytes(b"no archive")
    assert refused(root, PACKED) == "data.bad-archive"
    one = json.loads(files["submissions.json"])
    one["s2"]["id"] = "s3"
    assert refused(
        archive(root, {**files, "submissions.json": json.dumps(one).encode()}), PACKED
    ) == ("data.bad-field")
    person = f"archives/~{PEOPLE[0]}.jsonl"
    other = files[person].replace(b"Grammar", b"Glamour").replace(b'"p1"', b'"s2"')
    assert refused(archive(root, {**files, person: other}), PACKED) == "data.conflicting-paper"
    assert refused(archive(root, {**files, person: b"\xff\n"}), PACKED) == "data.not-utf-8"
    assert refused(archive(root, {**files, person: b"{}\n"}), PACKED) == "data.bad-field"


def test_a_folder_without_archives_or_a_file_that_leaves_the_root(tmp_path: Path) -> None:
    root = write_openreview(tmp_path / "root", packed=False)
    outside = tmp_path / "outside.json"
    path = root / "toy" / "v_1" / "submissions.json"
    path.rename(outside)
    path.symlink_to(outside)
    assert refused(root, UNPACKED) == "data.outside-root"
    path.unlink()
    assert refused(root, UNPACKED) == "data.missing"


def test_another_format_is_no_expertise(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="no adapter"):
        load(tmp_path, {**COMPACT, "format": "beir"})


@pytest.mark.parametrize("version", [1, 10])
def test_the_published_forms_agree(reviewer_root: Path, version: int) -> None:
    places = {"texts": "reviewer-gold", "ratings": "reviewer-gold", "version": f"d_20_{version}"}
    compact = load(reviewer_root, {"format": "reviewer-compact", **places})
    packed = {"format": "openreview", "archive": "d_20_openreview.tar.xz", **places}
    assert load(reviewer_root, packed).payload == compact.payload
    assert (len(compact.profiles), len(compact.submissions)) == (58, 463)
    assert (compact.rating_count, compact.pair_count) == (477, 1841)
