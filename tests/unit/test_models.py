"""Model files: what they are, whether they may be mounted, and what their absence comes to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from dense.snapshot import ModelError, snapshot_digest

from runner.errors import DataError, ManifestError
from runner.manifest import load_run_manifest
from runner.model import Outcome
from runner.models import read_model
from tests.sealed import Sandbox, does, overlap, sandbox

REVISION = "0123456789abcdef0123456789abcdef01234567"


def model(folder: Path, weights: bytes = b"weights") -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_a_digest_is_of_names_and_bytes_and_not_of_the_place(tmp_path: Path) -> None:
    first = read_model(model(tmp_path / "a"))
    assert first == read_model(model(tmp_path / "b" / "c"))
    assert [file.name for file in first.files] == [
        "1_Pooling/config.json",
        "config.json",
        "model.safetensors",
    ]
    assert first.size == 11
    assert read_model(model(tmp_path / "d", b"Weights")).digest != first.digest
    moved = model(tmp_path / "e")
    (moved / "config.json").rename(moved / "Config.json")
    assert read_model(moved).digest != first.digest


def test_the_image_computes_the_same_digest_as_the_host(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "naïve \U0001f600.txt").write_text("x")
    (folder / ".hidden").write_text("y")
    assert snapshot_digest(folder) == read_model(folder).digest
    with pytest.raises(ModelError):
        snapshot_digest(tmp_path / "absent")


def test_what_a_container_could_not_read_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "inside.json").symlink_to("config.json")
    read_model(folder)
    outside = tmp_path / "blob"
    outside.write_text("weights")
    (folder / "pytorch_model.bin").symlink_to(outside)
    with pytest.raises(DataError, match="link that leads out") as caught:
        read_model(folder)
    assert caught.value.code == "data.model-link"
    (folder / "pytorch_model.bin").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(DataError, match="no regular file"):
        read_model(folder)


@pytest.mark.parametrize(("name", "code"), [("absent", "data.no-model"), ("m", "data.model-empty")])
def test_a_folder_without_files_is_no_model(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / "m" / "empty").mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        read_model(tmp_path / name)
    assert caught.value.code == code


def looking(mounts: Mapping[str, Path]) -> None:
    """A method that needs its model."""
    assert (mounts["/models/tiny"] / "model.safetensors").read_bytes() == b"weights"
    overlap(mounts)


def box_with(tmp_path: Path, digest: str, *, requires: bool = False) -> Sandbox:
    box = sandbox(tmp_path / "box", "overlap", "looking", scripts={"looking": does(looking)})
    lines = [f"    models: [{{name: tiny, revision: {REVISION}, digest: '{digest}'}}]"]
    lines += ["    requires: [weights]"] if requires else []
    with box.manifest.open("a", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    return box


def test_a_model_is_mounted_and_is_part_of_the_methods_identity(tmp_path: Path) -> None:
    root = model(tmp_path / "models" / "tiny").parent
    box = box_with(tmp_path, read_model(root / "tiny").digest)
    engine = box.engine()
    result = box.run(engine=engine, models_root=root)
    assert {record.outcome for record in result.outcomes} == {Outcome.OK}
    assert box.verify().faults == ()
    (mount,) = [m for m in engine.specs[1].mounts if m.target.startswith("/models")]
    assert (mount.target, mount.read_only) == ("/models/tiny", True)
    assert not [m for m in engine.specs[0].mounts if m.target.startswith("/models")]
    plan = json.loads((box.out / "bundle" / "plan.json").read_bytes())
    without, given = plan["methods"]
    assert "models" not in without
    assert given["models"] == [
        {"name": "tiny", "revision": REVISION, "digest": read_model(root / "tiny").digest}
    ]
    other = box_with(tmp_path / "other", "sha256:" + "0" * 64)
    again = other.run()
    assert again.resolved.plan.methods[0].method_id == without["method_id"]
    assert again.resolved.plan.methods[1].method_id != given["method_id"]


@pytest.mark.parametrize("requires", [False, True])
def test_an_absent_model_is_an_outcome_with_its_reason(tmp_path: Path, requires: bool) -> None:
    box = box_with(tmp_path, "sha256:" + "0" * 64, requires=requires)
    (tmp_path / "models").mkdir()
    engine = box.engine()
    result = box.run(engine=engine, models_root=tmp_path / "models")
    assert [record.outcome for record in result.outcomes] == [Outcome.OK, Outcome.NOT_STARTED]
    assert "tiny (0123456789ab)" in result.outcomes[1].reason
    assert len(engine.specs) == 1
    assert result.summary.complete
    assert result.summary.unexpected == (0 if requires else 1)
    assert box.verify().faults == ()
    rows = json.loads((box.out / "bundle" / "results.json").read_bytes())["aggregate"]
    absent = [row for row in rows if row["method"] == "looking"]
    assert absent
    assert {(row["mean_score"], row["eligible"]) for row in absent} == {(None, False)}


def test_changed_model_files_are_refused_before_anything_starts(tmp_path: Path) -> None:
    root = model(tmp_path / "models" / "tiny").parent
    box = box_with(tmp_path, read_model(root / "tiny").digest)
    (root / "tiny" / "model.safetensors").write_bytes(b"Weights")
    engine = box.engine()
    with pytest.raises(DataError, match="the files of model tiny are sha256:") as caught:
        box.run(engine=engine, models_root=root)
    assert caught.value.code == "data.model-changed"
    assert engine.calls == []


def test_requires_without_a_model_is_a_fault(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    with box.manifest.open("a", encoding="utf-8") as stream:
        stream.write("    requires: [weights]\n")
    with pytest.raises(ManifestError, match="names no model"):
        load_run_manifest(box.manifest)


def test_a_revision_that_may_move_is_refused(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    with box.manifest.open("a", encoding="utf-8") as stream:
        stream.write("    models: [{name: a, revision: main, digest: 'sha256:%s'}]\n" % ("0" * 64))
    with pytest.raises(ManifestError, match="revision"):
        load_run_manifest(box.manifest)


def filling(mounts: Mapping[str, Path]) -> None:
    """A method that computes what is not in its cache."""
    known = mounts["/cache"] / "known"
    known.write_text(known.read_text() if known.exists() else "computed")
    overlap(mounts)


def test_a_cache_folder_outlives_the_run_and_the_record_says_so(tmp_path: Path) -> None:
    digests = []
    for name in ("cold", "warm"):
        box = sandbox(tmp_path / name, "filling", scripts={"filling": does(filling)})
        with box.manifest.open("a", encoding="utf-8") as stream:
            stream.write("    cache: true\n")
        (record,) = box.run(cache_dir=tmp_path / "caches").outcomes
        digests.append((record.evidence.cache_before, record.evidence.cache_after))
    (before, after), (again, last) = digests
    assert before is None
    assert after is not None
    assert (again, last) == (after, after)
    assert len(list((tmp_path / "caches").iterdir())) == 1
