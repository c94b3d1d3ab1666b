"""Commands and settings of one image share a cache, by turns, and nobody else does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runner import cachehash
from runner.ids import cache_id
from runner.model import NetworkPolicy
from tests.sealed import IMAGE, does, overlap, sandbox


def remembering(mounts: Mapping[str, Path]) -> None:
    """A method that leaves one more file in its cache; two at a time would meet."""
    busy = mounts["/cache"] / "busy"
    busy.touch(exist_ok=False)
    kept = mounts["/cache"] / f"unit-{len(list(mounts['/cache'].iterdir()))}"
    kept.write_text("x")
    busy.unlink()
    overlap(mounts)


def test_methods_of_one_image_share_a_cache_by_turns(tmp_path: Path) -> None:
    box = sandbox(
        tmp_path, "plain", scripts={name: does(remembering) for name in ("plain", "cells")}
    )
    text = box.manifest.read_text().replace("command: [plain]", "command: [plain]\n    cache: true")
    text += f"  - name: cells\n    image: {IMAGE}\n    command: [cells]\n    cache: true\n"
    text += "    matrix: {size: [1, 2, 3]}\n"
    box.manifest.write_text(text.replace("methods:", "jobs: 3\nmethods:"))
    result = box.run()
    found = {
        record.unit.method: (record.evidence.cache_before, record.evidence.cache_after)
        for record in result.outcomes
    }
    assert all(record.outcome.value == "ok" for record in result.outcomes)
    starts = [before for before, _ in found.values()]
    # One starts cold, and every other one with what another left.
    assert starts.count(None) == 1
    assert {before for before in starts if before} < {after for _, after in found.values()}
    assert len({after for _, after in found.values()}) == 4
    methods = result.resolved.plan.methods
    assert len({cache_id(method) for method in methods}) == 1
    assert len({method.method_id for method in methods}) == 4


def test_a_method_with_hosts_to_reach_has_a_cache_of_its_own(tmp_path: Path) -> None:
    from dataclasses import replace

    box = sandbox(tmp_path, "overlap")
    method = box.run().resolved.plan.methods[0]
    online = replace(method, network=NetworkPolicy(allow=("example.invalid",)))
    assert method.image is not None
    elsewhere = replace(method, image=replace(method.image, image_id=f"sha256:{'9' * 64}"))
    assert len({cache_id(one) for one in (method, online, elsewhere)}) == 3


def too_deep(cache: Path) -> None:
    """Folders in folders, beyond the length that a path may have."""
    above = os.open(cache, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=above)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = inner
    os.close(above)


def too_many(cache: Path) -> None:
    for number in range(6):
        (cache / str(number)).touch()


def too_large(cache: Path) -> None:
    with (cache / "sparse").open("wb") as stream:
        stream.truncate(2 << 30)


@pytest.mark.parametrize("spoil", [too_deep, too_many, too_large])
def test_a_cache_that_cannot_be_hashed_is_emptied_and_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(cachehash, "MAX_ENTRIES", 5)
    monkeypatch.setattr(cachehash, "MAX_BYTES", 1 << 30)

    def spoils(mounts: Mapping[str, Path]) -> None:
        spoil(mounts["/cache"])
        overlap(mounts)

    box = sandbox(tmp_path, "spoils", scripts={"spoils": does(spoils), "after": does(remembering)})
    text = box.manifest.read_text() + "    cache: true\n"
    text += f"  - name: after\n    image: {IMAGE}\n    command: [after]\n    cache: true\n"
    box.manifest.write_text(text)
    spoilt, after = (record.evidence for record in box.run().outcomes)
    (said,) = spoilt.harvest_refused
    assert said.startswith("/cache: ")
    assert said.endswith("; it was emptied")
    assert (spoilt.cache_after, after.cache_before) == (None, None)
    assert after.cache_after is not None
    assert after.rows is not None
    assert box.verify().faults == ()


def test_nothing_is_removed_while_a_container_may_be_writing(tmp_path: Path) -> None:
    too_deep(tmp_path)
    digest, lost = cachehash.settled(tmp_path, writing=True)
    assert digest is None
    assert len(lost) == len(list(tmp_path.iterdir())) == 1
