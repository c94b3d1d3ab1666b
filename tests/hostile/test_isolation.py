"""What a method can see and touch: its inputs, its output, and nothing of ours."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from runner.model import Outcome
from tests.hostile.arena import WORK, Arena

pytestmark = pytest.mark.engine


def test_no_network(arena: Arena) -> None:
    script = (
        "ip -o link; ip route; ping -c 1 -W 1 192.0.2.1 && echo REACHED; "
        "nc -w 1 192.0.2.1 80 < /dev/null && echo REACHED; "
        "busybox nslookup example.org && echo REACHED; "
        f"ping -c 1 -W 1 localhost > /dev/null && echo self; {WORK}"
    )
    verdict = arena.run(script)
    assert verdict.outcome is Outcome.OK
    lines = verdict.stdout.decode().splitlines()
    assert "lo" in lines[0]
    assert not any("REACHED" in line for line in lines)
    assert sum(": " in line and "link/" in line for line in lines) == 1, "only loopback"


def test_the_inputs_are_all_that_there_is_to_see(arena: Arena) -> None:
    (arena.folder / "in").mkdir()
    (arena.folder / "labels").mkdir()
    (arena.folder / "labels" / "qrels.tsv").write_text("SECRET")
    script = (
        f"{WORK}; busybox find /in | busybox sort; echo --; "
        "busybox find / -xdev -name '*.sock' -o -name '*qrels*' -o -name 'journal*' 2>/dev/null; "
        "ls /in/.. ; cat /in/../labels/qrels.tsv; cat /proc/1/environ; ls /proc/1/root; exit 0"
    )
    verdict = arena.run(script)
    assert verdict.outcome is Outcome.OK
    seen, _, rest = verdict.stdout.decode().partition("--\n")
    assert seen.split() == ["/in", "/in/good.jsonl", "/in/task.json"]
    assert "SECRET" not in rest
    assert str(arena.folder) not in rest
    found = [line for line in rest.splitlines() if line.endswith((".sock", ".tsv", ".jsonl"))]
    assert found == []


@pytest.mark.parametrize(
    "path",
    ["/x", "/bin/x", "/etc/x", "/in/x", "/in/good.jsonl", "/etc/hosts", "/sys/x", "/proc/sys/x"],
)
def test_nothing_else_can_be_written(arena: Arena, path: str) -> None:
    verdict = arena.run(f"{WORK}; echo x >> {path}")
    assert verdict.outcome is Outcome.CRASHED
    assert (arena.folder / "in" / "good.jsonl").read_text().count("\n") == 3


def test_the_inputs_stay_as_they_are_even_for_their_owner(arena: Arena) -> None:
    wanted = arena.request(f"{WORK}; rm /in/good.jsonl; mv /in/task.json /in/x; echo y > /in/y")
    uid, gid = (int(part) for part in wanted.user.split(":"))
    if os.geteuid() == 0:
        os.chown(wanted.in_dir, uid, gid)
    arena.run_request(wanted)
    assert {path.name for path in wanted.in_dir.iterdir()} == {"good.jsonl", "task.json"}


def test_no_rights_to_gain(arena: Arena) -> None:
    script = (
        f"{WORK}; id -u; busybox grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; "
        "busybox mount -t tmpfs none /tmp && echo MOUNTED; busybox chroot /out && echo ROOTED; "
        "busybox su -c id && echo BECAME; kill -9 1 && echo SENT; "
        "busybox unshare -r true && echo UNSHARED; exit 0"
    )
    verdict = arena.run(script)
    assert verdict.outcome is Outcome.OK
    text = verdict.stdout.decode()
    assert int(text.splitlines()[0]) not in (0,)
    status = dict(line.split(":\t") for line in text.splitlines() if ":\t" in line)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert not {"MOUNTED", "ROOTED", "BECAME", "UNSHARED"} & set(text.split())


def test_nothing_of_our_environment(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:password@proxy.invalid:3128")
    monkeypatch.setenv("SEALBENCH_TEST_SECRET", "hush")
    verdict = arena.run(f"{WORK}; env")
    text = verdict.stdout.decode()
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert names <= {
        *("HOME", "HOSTNAME", "LANG", "PATH", "PWD", "SHLVL", "OLDPWD", "PYTHONHASHSEED"),
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
        *("inputDataset", "outputDir", "SEALBENCH_SEED"),
    }
    assert "password" not in text
    assert "HOSTNAME=sealbench" in text


def test_a_cache_is_kept_between_units_and_other_folders_are_not(arena: Arena) -> None:
    cache = arena.folder / "cache"
    cache.mkdir()
    wanted = replace(
        arena.request(f"{WORK}; cat /cache/seen; echo warm > /cache/seen; ls /out /tmp"),
        cache_dir=cache,
    )
    assert b"warm" not in arena.run_request(wanted).stdout
    arena.clear()
    wanted.out_dir.mkdir()
    second = arena.run_request(wanted)
    assert second.stdout.startswith(b"warm\n")
    assert second.outcome is Outcome.OK


def test_units_side_by_side_do_not_see_each_other(arena: Arena) -> None:
    verdict = arena.run(f"{WORK}; echo 1 > /dev/shm/x; busybox ipcs -m; ls /proc | head -n 5")
    assert verdict.outcome is Outcome.OK
    pids = [int(name) for name in verdict.stdout.decode().split() if name.isdigit()]
    assert max(pids) < 100, "a pid namespace of its own"
