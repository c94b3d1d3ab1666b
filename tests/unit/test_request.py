"""What a container is asked to be, and what of an engine's words may be recorded."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import EngineError, StorageError
from runner.model import Limits
from runner.request import (
    MAX_TEXT,
    container_spec,
    container_user,
    give_folders,
    method_env,
    unit_name,
    without_host_paths,
)
from tests.unit.units import LIMITS, request


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("no paths here", "no paths here"),
        ("bind source /home/me/x: gone", "bind source <path>: gone"),
        ('path "/srv/data/in" is bad', 'path "<path>" is bad'),
        ("mount /out from /w/out,ro", "mount /out from <path>,ro"),
        ("exec: /bin/sh: no such file", "exec: /bin/sh: no such file"),
        ("/usr/bin/env and /proc/self", "/usr/bin/env and /proc/self"),
        ("/input/x /outer/y /cached", "<path> <path> <path>"),
        ("a/b and 5/6 stay", "a/b and 5/6 stay"),
        ("sha256:ab/cd stays", "sha256:ab/cd stays"),
        ("(/var/lib/docker/x)", "(<path>)"),
        ("/dev/shm/me/runs: gone", "<path>: gone"),
        ("/dev/shm and /dev/null are full", "/dev/shm and /dev/null are full"),
        ("/usr/src/me and /usr/local/share/me", "<path> and <path>"),
        ("/usr/local/bin/x and /sbin/y.z", "/usr/local/bin/x and /sbin/y.z"),
        ("/bin/me/runs", "<path>"),
        ("open /in/rows.jsonl: no", "open /in/rows.jsonl: no"),
        ("unix:///run/me.sock", "unix:<path>"),
        ("/dev/null/me and /dev/nullify", "<path> and <path>"),
        ("/proc/1/ns/mnt, /procession", "/proc/1/ns/mnt, <path>"),
    ],
)
def test_paths_of_the_host_are_no_evidence(message: str, expected: str) -> None:
    error = EngineError("engine.refused", message, fix="-")
    assert without_host_paths(error) == f"{expected} [engine.refused]"


def test_the_runs_own_folders_are_no_evidence_wherever_they_lie(tmp_path: Path) -> None:
    odd = Path("/in/me/my runs/in"), Path("/usr/bin/me/w")
    ours = request(tmp_path, in_dir=odd[0], work_dir=odd[1])
    words = f"a /in/me/my runs/in/x y, '/usr/bin/me/w' {ours.out_dir}; /in/me2 /usr/bin/me"
    error = EngineError("engine.refused", words, fix="-")
    expected = "a <path> y, '<path>' <path>; /in/me2 /usr/bin/me [engine.refused]"
    assert without_host_paths(error, ours) == expected


def test_a_talkative_engine_is_cut_short() -> None:
    assert len(without_host_paths(EngineError("x", "y" * 10_000, fix="-"))) == MAX_TEXT


@pytest.mark.parametrize(
    ("cpus_milli", "threads"), [(1, "1"), (1000, "1"), (1001, "2"), (4000, "4")]
)
def test_threads_are_what_is_granted(cpus_milli: int, threads: str) -> None:
    env = method_env(replace(LIMITS, cpus_milli=cpus_milli), 3)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        assert env[name] == threads
    assert env["SEALBENCH_SEED"] == "3"
    assert env["inputDataset"] == "/in"
    assert env["outputDir"] == "/out"


def test_methods_are_never_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert container_user() == "65534:65534"
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 99)
    assert container_user() == "1234:99"


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        (Limits(output_bytes=10, tmp_bytes=5, shm_bytes=5), 11),
        (Limits(output_bytes=10, tmp_bytes=50, shm_bytes=5), 51),
        (Limits(output_bytes=10, tmp_bytes=5, shm_bytes=70), 71),
    ],
)
def test_the_largest_file_is_one_byte_over_the_largest_cap(
    tmp_path: Path, limits: Limits, size: int
) -> None:
    wanted = replace(request(tmp_path), limits=limits)
    spec = container_spec(wanted, name="n", labels={}, cgroup_parent=None)
    assert spec.file_size_bytes == size
    assert (spec.memory_bytes, spec.pids) == (limits.memory_bytes, limits.pids)


def test_names_fit_control_groups_and_containers(tmp_path: Path) -> None:
    name = unit_name(request(tmp_path))
    assert name.startswith("1" * 12 + "-" + "2" * 12 + "-")
    assert len(name) <= 63
    assert name != unit_name(request(tmp_path))


def test_the_writable_folders_change_hands(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    wanted = request(tmp_path, cache_dir=tmp_path / "cache")
    give_folders(wanted)
    uid = int(wanted.user.split(":")[0])
    for name in ("out", "cache"):
        found = (tmp_path / name).stat()
        assert found.st_uid == uid
        if os.geteuid() == 0:
            assert stat.S_IMODE(found.st_mode) == 0o700
    assert (tmp_path / "in").stat().st_uid == os.geteuid()


def test_a_folder_that_cannot_change_hands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(StorageError) as caught:
        give_folders(request(tmp_path, user="65534:65534"))
    assert caught.value.code == "storage.not-given"
