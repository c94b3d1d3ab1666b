"""Leases: who owns a container, and does the owner live?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner.engine.lease import (
    EXPIRES,
    LEASE,
    Lease,
    Owner,
    expired,
    labels,
    own_lease,
    owner_state,
    parse_lease,
)


def test_round_trip() -> None:
    lease = own_lease()
    assert parse_lease(str(lease)) == lease
    assert lease.pid == os.getpid()
    assert lease.started > 0
    assert owner_state(lease) is Owner.ALIVE


def test_a_lease_names_no_host() -> None:
    text = str(own_lease())
    assert re.fullmatch(r"[0-9a-f]{12}-[0-9]+-[0-9]+-[0-9]+", text)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot[:8] not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1-2-3-4",
        "a" * 12,
        f"{'a' * 12}-1-2",
        f"{'a' * 12}-1-2-3-4",
        f"{'A' * 12}-1-2-3",
        f"{'a' * 12}-1-2-3\n",
        f"{'a' * 12}-1-{'9' * 30}-3",
    ],
)
def test_not_a_lease(text: str) -> None:
    assert parse_lease(text) is None
    assert owner_state(parse_lease(text)) is Owner.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "owner"),
    [
        ({}, Owner.ALIVE),
        ({"started": 1}, Owner.DEAD),  # the pid was given to another process
        ({"boot": "0" * 12}, Owner.DEAD),
        ({"namespace": 1}, Owner.UNKNOWN),
        ({"pid": 2**30}, Owner.DEAD),
    ],
)
def test_owners(changes: dict[str, object], owner: Owner) -> None:
    mine = own_lease()
    fields = {name: getattr(mine, name) for name in ("boot", "namespace", "pid", "started")}
    assert owner_state(Lease(**{**fields, **changes})) is owner


def test_an_owner_that_ended_is_dead_even_as_a_zombie() -> None:
    code = "from runner.engine.lease import own_lease; print(own_lease(), flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lease = parse_lease(child.stdout.read().strip())
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert lease is not None
    assert lease.pid == child.pid
    assert owner_state(lease) is Owner.DEAD
    child.wait()
    assert owner_state(lease) is Owner.DEAD
    child.stdout.close()


def test_labels() -> None:
    found = labels(run_id="sha256:r", unit_id="sha256:u", expires_epoch=12)
    assert found == {
        "sealbench.run": "sha256:r",
        "sealbench.unit": "sha256:u",
        LEASE: str(own_lease()),
        EXPIRES: "12",
    }


@pytest.mark.parametrize(
    ("stamp", "now", "past"),
    [
        ("10", 11.0, True),
        ("10", 10.0, False),
        ("10", 9.0, False),
        ("", 1e12, False),
        ("soon", 1e12, False),
        ("-1", 1e12, False),
        ("\u0663", 1e12, False),  # a digit, but not one of ours
    ],
)
def test_expiry(stamp: str, now: float, past: bool) -> None:
    assert expired({EXPIRES: stamp} if stamp else {}, now) is past
