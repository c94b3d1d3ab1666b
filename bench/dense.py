"""Encoding beside sentence-transformers' own ``encode``, and exact search beside plain numpy.

Both sides of each run in one container of the dense image, in turns, with the same threads and the
same batch size. Ours includes checks, the cache's file and its fsyncs. Needs an engine that has the
image (``sealbench images build dense``). Texts are made up from the quickstart's words, with
lengths like those of abstracts.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from bench.measure import print_limit, scale_of
from runner.engine.cgroups import open_cgroups
from runner.engine.docker import DockerEngine
from runner.imagelock import host_platform, load_locks, resolve_image
from runner.model import Limits, Unit
from runner.request import UnitRequest, container_user, method_env
from runner.signals import CancelToken
from runner.supervisor import Platform, run_unit

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "manifests" / "data" / "quickstart-mini" / "corpus.jsonl"
THREADS, BATCH_SIZE, ROUNDS, TEXTS = 2, 32, 3, 160
LIMITS = Limits(memory_bytes=3 << 30, cpus_milli=THREADS * 1000, output_bytes=256 << 20)


def made_up(count: int) -> list[str]:
    """Return texts with lengths spread like those of abstracts that are cut at 700 characters."""
    dice = random.Random(1)  # noqa: S311 - made-up texts
    words = [
        word
        for line in WORDS.read_text(encoding="utf-8").splitlines()
        for word in json.loads(line)["text"].split()
    ]
    return [
        " ".join(dice.choices(words, k=max(8, int(dice.gauss(110, 45)))))[:700]
        for _ in range(count)
    ]


def measure(folder: Path, texts: list[str]) -> dict[str, dict[str, float]]:
    """Run the inside part in one container and return what it found."""
    for name in ("in", "out", "work"):
        (folder / name).mkdir()
    asked = {"threads": THREADS, "batch_size": BATCH_SIZE, "rounds": ROUNDS}
    (folder / "in" / "asked.json").write_text(json.dumps(asked))
    (folder / "in" / "texts.json").write_text(json.dumps(texts))
    shutil.copy(Path(__file__).with_name("dense_inside.py"), folder / "in" / "inside.py")
    image = resolve_image("dense", load_locks(), host_platform())
    engine = DockerEngine()
    result = run_unit(
        Platform(engine=engine, cgroups=open_cgroups(engine.info())),
        UnitRequest(
            run_id="sha256:" + "0" * 64,
            unit=Unit(
                unit_id="sha256:" + "1" * 64, method="bench", method_id="sha256:" + "2" * 64,
                dataset="none", repeat=0, seed=0,
            ),
            image_id=image.digest,
            command=("python3", "/in/inside.py"),
            limits=LIMITS,
            remaining_wall_ms=900_000,
            in_dir=folder / "in",
            out_dir=folder / "out",
            work_dir=folder / "work",
            stdout_log=folder / "stdout.log",
            stderr_log=folder / "stderr.log",
            env=method_env(LIMITS, 0),
            user=container_user(),
        ),
        cancel=CancelToken(),
    )  # fmt: skip
    found = folder / "out" / "found.json"
    if not found.is_file():
        raise RuntimeError(f"{result.evidence}\n{(folder / 'stderr.log').read_text()[-2000:]}")
    return dict(json.loads(found.read_bytes()))


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a goal is missed."""
    count = int(TEXTS * scale_of(arguments, __doc__ or ""))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        found = measure(folder, made_up(count))
    encoding, searching = found["encoding"], found["searching"]
    print(
        f"{count} texts, {THREADS} threads, batch size {BATCH_SIZE}: ours {encoding['ours']:.2f} s,"
        f" sentence-transformers {encoding['theirs']:.2f} s wall;"
        f" largest difference of a component {encoding['difference']:.1e}"
    )
    print(
        f"300 queries x 5,183 x 384: ours {searching['ours'] * 1e3:.1f} ms,"
        f" matmul and argpartition {searching['plain'] * 1e3:.1f} ms wall"
    )
    met = [
        print_limit("encoding, ours / encode", encoding["ours"] / encoding["theirs"], "x", 1.2),
        print_limit("search, ours / numpy", searching["ours"] / searching["plain"], "x", 2.0),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
