"""The images of this repository in a real engine: the locked ids, and methods under hard limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.engine.api import Engine, Mount
from runner.imagebuild import BuildReport, build
from runner.imagebuild.build import IMAGES_FOLDER
from runner.imagelock import load_locks
from runner.schemas import is_valid
from tests.containers import MIB, Ran, out_mount, run, spec
from tests.unit.test_sdk import write_inputs

pytestmark = pytest.mark.engine

CACHE = IMAGES_FOLDER.parent / ".cache"
LOCKS = load_locks(IMAGES_FOLDER / "images.lock.json")
PLATFORM = "linux/amd64"
LEXICAL = ["bm25-okapi", "bm25s", "tfidf", "fts5"]

PROBE = """
import json, os, pathlib, pwd, shutil, sqlite3
def writable(folder):
    try:
        pathlib.Path(folder, "probe").write_bytes(b"x")
    except OSError:
        return False
    return True
print(json.dumps({
    "ids": [os.getuid(), os.geteuid(), os.getgid()],
    "capabilities": [l.split()[1] for l in open("/proc/self/status") if l.startswith("Cap")],
    "interfaces": os.listdir("/sys/class/net"),
    "writable": [f for f in ("/", "/usr", "/in", "/etc", "/out", "/tmp", "/cache") if writable(f)],
    "programs": [p for p in ("sh", "bash", "dash", "dpkg", "apt", "pip", "cc") if shutil.which(p)],
    "set_id": [p for d, _, fs in os.walk("/usr") for f in fs
               if not os.path.islink(p := os.path.join(d, f)) and os.stat(p).st_mode & 0o6000],
    "fts5": [o for (o,) in sqlite3.connect(":memory:").execute("pragma compile_options")
             if o == "ENABLE_FTS5"],
    "encoding": open(os.devnull).encoding,
}))
"""

UNCOMPILED = """
import json, pathlib, sys
import bm25s, rank_bm25, sealbench_sdk, sklearn.feature_extraction.text
from importlib.machinery import SourceFileLoader
loaded = [m.__spec__ for m in sys.modules.values() if getattr(m, "__spec__", None)]
from_files = [s for s in loaded if isinstance(s.loader, SourceFileLoader)]
assert len(from_files) > 500
print(json.dumps([s.name for s in from_files if not pathlib.Path(s.cached).exists()]))
"""


@pytest.fixture(scope="module")
def built(engine: Engine) -> BuildReport:
    """The images, in the engine. They stay there: other tests and runs use them."""
    return build(["base", "failures", "lexical"], engine=engine, cache_dir=CACHE)


@pytest.fixture
def image_ids(built: BuildReport) -> dict[str, str]:
    return {image.name: str(image.pin.image_id) for image in built.images}


def test_the_engine_has_the_images_under_our_ids(engine: Engine, built: BuildReport) -> None:
    for image in built.images:
        info = engine.inspect_image(str(image.pin.image_id))
        assert info is not None
        assert info.image_id in {image.pin.image_id, image.pin.manifest_digest}
        assert info.platform == PLATFORM
        assert info.labels["sealbench.image"] == image.name
        assert info.labels["sealbench.inputs"].startswith("sha256:")
        assert (
            json.loads(info.labels["sealbench.methods"]).keys()
            == LOCKS.published.methods.get(image.name, {}).keys()
        )


def test_a_build_gives_the_locked_images_unless_it_says_otherwise(built: BuildReport) -> None:
    for image in built.images:
        entry = LOCKS.published.images[image.name][PLATFORM]
        if image.pin.published:
            assert image.pin.image_id == entry.image_id
        else:
            # The archive has moved on: the report has to name what moved.
            assert image.differences or image.status == "present"
            assert image.pin.image_id != entry.image_id


def method_run(
    engine: Engine,
    image_id: str,
    tmp_path: Path,
    command: tuple[str, ...],
    *,
    config: Mapping[str, Any] | None = None,
    memory_mib: int = 256,
) -> tuple[Ran, list[bytes]]:
    """Run a method's command as the supervisor would; return what it did and its lines."""
    inputs = write_inputs(tmp_path / "in", queries=10, config=dict(config or {}))
    wanted = spec(
        image_id,
        command,
        mounts=(
            Mount(source=inputs, target="/in", read_only=True),
            out_mount(tmp_path / "out"),
        ),
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        memory_bytes=memory_mib * MIB,
        pids=32,
    )
    ran = run(engine, wanted)
    rows = tmp_path / "out/rows.jsonl"
    return ran, rows.read_bytes().splitlines() if rows.exists() else []


@pytest.mark.parametrize("method", LEXICAL)
def test_lexical_methods_run_read_only_without_privileges_or_network(
    engine: Engine, image_ids: dict[str, str], tmp_path: Path, method: str
) -> None:
    declared = LOCKS.published.methods["lexical"][method]
    ran, rows = method_run(
        engine, image_ids["lexical"], tmp_path, declared.command, config=declared.config
    )
    assert (ran.code, ran.stderr) == (0, b"")
    parsed = [json.loads(row) for row in rows]
    assert [row["query_id"] for row in parsed] == [f"q{n}" for n in range(10)]
    assert all(is_valid("row-retrieval", row) and row["error"] is None for row in parsed)


@pytest.mark.parametrize("name", ["base", "lexical"])
def test_what_is_in_an_image_and_what_is_not(
    engine: Engine, image_ids: dict[str, str], tmp_path: Path, name: str
) -> None:
    ran, _ = method_run(engine, image_ids[name], tmp_path, ("python3", "-c", PROBE))
    assert ran.code == 0, ran.stderr
    probe = json.loads(ran.stdout)
    assert probe["ids"] == [65532, 65532, 65532]
    assert set(probe["capabilities"]) == {"0" * 16}
    assert probe["interfaces"] == ["lo"]
    assert probe["writable"] == ["/out", "/tmp"]
    assert probe["programs"] == []
    assert probe["set_id"] == []
    assert probe["fts5"] == ["ENABLE_FTS5"]
    assert probe["encoding"].lower() == "utf-8"


def test_nothing_is_compiled_at_run_time(
    engine: Engine, image_ids: dict[str, str], tmp_path: Path
) -> None:
    ran, _ = method_run(engine, image_ids["lexical"], tmp_path, ("python3", "-c", UNCOMPILED))
    assert ran.code == 0, ran.stderr
    assert json.loads(ran.stdout) == []


@pytest.mark.parametrize(("method", "end"), [("honest", (0, 10)), ("crashing", (3, 5))])
def test_failing_methods_end_as_they_say(
    engine: Engine,
    image_ids: dict[str, str],
    tmp_path: Path,
    method: str,
    end: tuple[int, int],
) -> None:
    declared = LOCKS.published.methods["failures"][method]
    ran, lines = method_run(
        engine, image_ids["failures"], tmp_path, declared.command, config=declared.config
    )
    assert (ran.code, len(lines)) == end


def test_greedy_is_stopped_by_its_memory_limit(
    engine: Engine, image_ids: dict[str, str], tmp_path: Path
) -> None:
    ran, _ = method_run(
        engine,
        image_ids["failures"],
        tmp_path,
        ("python3", "-m", "failing.greedy"),
        memory_mib=64,
    )
    assert ran.code != 0
    assert ran.state.oom_flag or (ran.usage.oom_events or 0) > 0


def test_forking_is_stopped_by_its_pids_limit(
    engine: Engine, image_ids: dict[str, str], tmp_path: Path
) -> None:
    ran, _ = method_run(
        engine, image_ids["failures"], tmp_path, ("python3", "-m", "failing.forking")
    )
    assert ran.code == 1
    assert b"fork refused after" in ran.stderr
