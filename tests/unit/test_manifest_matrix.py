"""``matrix`` in a run manifest, and precomputed files that lie below the data root."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import DataError, ManifestError
from runner.imports import check_pinned
from runner.manifest import RunManifest, lint_run_manifest, parse_run_manifest
from runner.plan import build_plan
from tests.unit.manifest_samples import AMD64, locks, protocol_with

HEAD = """schema: sealbench/run/v1
name: study
protocol: p.json
splits: [all]
methods:
"""
IMAGE = "sha256:" + "ab" * 32


def manifest(text: str, folder: Path = Path()) -> RunManifest:
    return parse_run_manifest((HEAD + text).encode(), folder / "run.yaml")


def faults(text: str, folder: Path) -> list[str]:
    path = folder / "run.yaml"
    path.write_text(HEAD + text)
    return [
        f"{fault.code}@{fault.where and fault.where.line}" for fault in lint_run_manifest(path)[1]
    ]


def test_every_combination_is_a_method_in_order() -> None:
    made = manifest(
        f"  - name: m\n    image: {IMAGE}\n    command: [run]\n    config: {{other: 1}}\n"
        "    matrix: {regime: [t, ta], length: [1, 20], flag: [true]}\n"
        f"  - {{name: last, image: '{IMAGE}', command: [run]}}\n"
    )
    assert [method.name for method in made.methods] == [
        "m.t.1.true", "m.t.20.true", "m.ta.1.true", "m.ta.20.true", "last",
    ]  # fmt: skip
    assert dict(made.methods[1].config) == {"other": 1, "regime": "t", "length": 20, "flag": True}
    assert [method.entry for method in made.methods] == [0, 0, 0, 0, 1]
    assert made.methods[0].method is None  # the command is given


def test_the_images_method_keeps_its_name() -> None:
    made = manifest("  - name: tpms\n    image: expertise\n    matrix: {regime: [t]}\n")
    assert [(one.name, one.method) for one in made.methods] == [("tpms.t", "tpms")]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("config: {a: 1}\n    matrix: {a: [1, 2]}", ["manifest.matrix-config@9"]),
        ("matrix: {a: [1, 1]}", ["manifest.duplicate@8", "manifest.duplicate-method@6"]),
        ("matrix: {a: [UPPER]}", ["manifest.matrix-name@8"]),
        ("matrix: {a: ['0123456789012345678901234567890123456789']}", ["manifest.matrix-name@8"]),
        ("matrix: {a: []}", ["schema.bound@8"]),
        ("matrix: {}", ["schema.bound@8"]),
        ("matrix: {a: [[1]]}", ["schema.type@8"]),
        (f"matrix: {{a: {list(range(40))}, b: {list(range(40))}}}", ["manifest.matrix-size@8"]),
        ("pin: {sha256: 'sha256:" + "0" * 64 + "', size: 1}", ["manifest.precomputed@8"]),
    ],
)
def test_what_no_matrix_can_be(tmp_path: Path, entry: str, expected: list[str]) -> None:
    found = faults(f"  - name: m\n    image: {IMAGE}\n    {entry}\n", tmp_path)
    assert sorted(found) == sorted(expected)


def test_a_precomputed_method_has_no_matrix(tmp_path: Path) -> None:
    found = faults("  - name: m\n    precomputed: a.csv\n    matrix: {a: [1]}\n", tmp_path)
    assert found == ["manifest.precomputed@8"]


def pinned(folder: Path, data: bytes = b"x\n") -> RunManifest:
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    return manifest(
        "  - name: theirs\n    precomputed: '{data_root}/p/{dataset}.csv'\n"
        f"    pin: {{sha256: 'sha256:{digest}', size: {len(data)}}}\n",
        folder,
    )


def test_results_below_the_data_root_need_it(tmp_path: Path) -> None:
    spec = pinned(tmp_path).methods[0]
    assert spec.imported_path("d", tmp_path / "root") == tmp_path / "root" / "p" / "d.csv"
    with pytest.raises(DataError) as caught:
        spec.imported_path("d")
    assert caught.value.code == "data.no-root"
    beside = manifest("  - {name: t, precomputed: 'r/{dataset}.csv'}\n", tmp_path).methods[0]
    assert beside.imported_path("d") == tmp_path / "r" / "d.csv"


def test_a_pinned_file_is_planned_without_it_and_compared_before_a_run(tmp_path: Path) -> None:
    made = pinned(tmp_path)
    plan = build_plan(made, protocol_with(), locks(), AMD64)
    assert {file.size for file in plan.methods[0].precomputed} == {2}
    root = tmp_path / "root"
    (root / "p").mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        check_pinned(made, plan, root)
    assert caught.value.code == "data.import-unreadable"
    for file in plan.methods[0].precomputed:
        (root / "p" / f"{file.dataset}.csv").write_bytes(b"x\n")
    check_pinned(made, plan, root)
    (root / "p" / f"{plan.methods[0].precomputed[0].dataset}.csv").write_bytes(b"y\n")
    with pytest.raises(DataError) as caught:
        check_pinned(made, plan, root)
    assert caught.value.code == "data.changed"


def test_an_absolute_path_is_refused_even_with_a_placeholder() -> None:
    with pytest.raises(ManifestError):
        manifest("  - {name: t, precomputed: '/{data_root}/x.csv'}\n")
