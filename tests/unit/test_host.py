"""The host's description: complete where the kernel tells, silent about people and places."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from runner.engine.fake import FAKE_INFO
from runner.host import host_document, read_load, source_state, swap_bytes
from runner.schemas import is_valid

LOAD = (0.5, 0.25, 0.0)
SECRETS = ("zq-machine", "zq-user", "/home/zq-user", "zq-token", "GPU-1234", "0000:01:00.0")
CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Some(R) CPU @ 2.60GHz
physical id\t: 0
core id\t\t: 0

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Some(R) CPU @ 2.60GHz
physical id\t: 0
core id\t\t: 0
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    files = {
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": "MemTotal:  1000 kB\nMemFree: 1 kB\nSwapTotal:  8 kB\n",
        "proc/loadavg": "0.50 0.25 0.00 1/100 4242\n",
        "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
        "proc/sys/kernel/hostname": "zq-machine\n",
        "proc/sys/kernel/version": "#1 SMP zq-user@zq-machine\n",
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\nHOME_URL="https://zq-machine"\n',
        "etc/hostname": "zq-machine\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3600000\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "proc/driver/nvidia/version": (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  built by zq-user@zq-machine"
        ),
        "proc/driver/nvidia/gpus/0000:01:00.0/information": (
            "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1234\nBus Location: \t 0000:01:00.0\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def document(root: Path, **changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {"load_start": LOAD, "load_end": LOAD, "root": root, **changes}
    return host_document(FAKE_INFO, **arguments)


def test_what_is_read(machine: Path) -> None:
    found = document(machine)
    assert found["cpu"] == {
        "model": "Some(R) CPU @ 2.60GHz",
        "vendor": "GenuineIntel",
        "logical": 2,
        "physical": 1,
        "governor": "performance",
        "mhz_max": 3600,
    }
    assert (found["memory_bytes"], found["swap_bytes"]) == (1_024_000, 8_192)
    assert (found["kernel"], found["os"]) == ("6.1.0-18-amd64", {"id": "debian", "version": "12"})
    assert found["engine"]["version"] == FAKE_INFO.version
    assert found["load"] == {"start": list(LOAD), "end": list(LOAD)}
    assert found["gpu"] == [
        {"vendor": "NVIDIA", "model": "NVIDIA A100", "driver": "535.54.03", "memory_bytes": None}
    ]
    assert "gpu.memory_bytes" in found["unmeasured"]
    assert is_valid("host", found)


def test_nothing_of_people_and_places(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/zq-user")
    monkeypatch.setenv("USER", "zq-user")
    monkeypatch.setenv("HOSTNAME", "zq-machine")
    monkeypatch.setenv("API_TOKEN", "zq-token")
    text = json.dumps(document(machine))
    for secret in (*SECRETS, str(machine)):
        assert secret not in text


def test_nothing_of_this_machine() -> None:
    text = json.dumps(document(Path("/")))
    name = os.uname().nodename
    if len(name) > 3:  # shorter names are part of ordinary words
        assert name not in text
    assert os.uname().version not in text


def test_a_kernel_named_after_the_machine_is_cut_to_its_version(machine: Path) -> None:
    (machine / "proc/sys/kernel/osrelease").write_text("6.6.1-zq-machine\n")
    assert document(machine)["kernel"] == "6.6.1"


def test_an_empty_machine_says_why(tmp_path: Path) -> None:
    found = host_document(None, load_start=None, load_end=None, root=tmp_path)
    assert is_valid("host", found)
    for field in ("cpu.model", "cpu.governor", "memory_bytes", "kernel", "os.id", "engine"):
        assert found["unmeasured"][field]  # type: ignore[index,call-overload]  # a JSON object
    assert found["gpu"] == []
    assert found["cgroup_version"] is None


def test_another_vendors_card_is_not_called_none(tmp_path: Path) -> None:
    (tmp_path / "sys/class/kfd").mkdir(parents=True)
    found = document(tmp_path)
    assert found["gpu"] is None
    assert "gpu" in found["unmeasured"]


def test_hostile_values_are_cleaned(machine: Path) -> None:
    (machine / "proc/cpuinfo").write_text("processor: 0\nmodel name: a\x1b[31mb" + "c" * 999)
    found = document(machine)
    assert found["cpu"]["model"].startswith("a[31mbc")
    assert len(found["cpu"]["model"]) == 256
    assert is_valid("host", found)


def test_load_and_swap(machine: Path, tmp_path: Path) -> None:
    assert read_load(machine) == LOAD
    assert swap_bytes(machine) == 8192
    assert read_load(tmp_path / "absent") is None
    (machine / "proc/loadavg").write_text("soon\n")
    assert read_load(machine) is None


def test_it_is_quick() -> None:
    document(Path("/"))
    began = time.process_time()
    document(Path("/"))
    assert time.process_time() - began < 0.15


# --- the source's state -----------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_checkout_knows_its_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert source_state(tmp_path)[0] is None  # no commit yet
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "untracked").touch()
    assert source_state(tmp_path) == (commit, False, "")
    (tmp_path / "file").write_text("2")
    assert source_state(tmp_path) == (commit, True, "")


def test_the_environment_cannot_point_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    inside = tmp_path / "plain"
    inside.mkdir()
    assert source_state(inside) == (None, None, "not run from a git checkout")
