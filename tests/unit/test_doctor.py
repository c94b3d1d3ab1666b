from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from runner.doctor import Finding, Machine, Status, as_document, as_text, diagnose, is_ready
from runner.engine.api import Engine
from runner.engine.fake import FAKE_INFO, FakeEngine, fake_image
from runner.errors import EngineError

GIB = 1 << 30
ID_A, ID_B = ("sha256:" + letter * 64 for letter in "ab")
METHOD = {"command": ["run"], "config": {}, "cache": False, "tasks": ["retrieval"]}


def lock(image_id: str) -> bytes:
    return json.dumps(
        {
            "schema": "sealbench/images-lock/v1",
            "images": {"lexical": {"linux/amd64": {"image_id": image_id}}},
            "methods": {"lexical": {"bm25s": METHOD}},
        }
    ).encode()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a locked image and a signing key."""
    root = tmp_path / "checkout"
    (root / "images").mkdir(parents=True)
    (root / "images" / "lock.json").write_bytes(lock(ID_A))
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "default.pem").write_text("key", encoding="ascii")
    (keys / "default.pem").chmod(0o600)
    monkeypatch.setenv("SEALBENCH_KEYS", str(keys))
    return root


@pytest.fixture
def machine(checkout: Path) -> Machine:
    """A machine that lacks nothing."""
    info = replace(FAKE_INFO, data_root=None, unenforceable=())
    return Machine(
        checkout=checkout,
        published_lock=checkout / "images" / "lock.json",
        local_lock=checkout / "cache" / "local.json",
        open_engine=lambda: FakeEngine(images=[fake_image(ID_A)], info=info),
        find_tool=lambda name: f"/usr/bin/{name}",
        free_bytes=lambda _: 100 * GIB,
        python=(3, 12),
        timeout_s=10,
    )


def one(findings: tuple[Finding, ...], name: str) -> Finding:
    (found,) = (finding for finding in findings if finding.name == name)
    return found


def no_engine() -> NoReturn:
    raise EngineError("engine.not-found", "no engine here", fix="start one")


def test_a_machine_that_lacks_nothing(machine: Machine) -> None:
    findings = diagnose(machine)
    assert is_ready(findings)
    assert [finding.name for finding in findings] == [
        "python",
        "engine",
        "limits",
        "measuring",
        "image lexical",
        "key",
        "disk",
        "data root",
        "openssl",
        "jq",
        "ssh-keygen",
    ]
    assert all(finding.fix for finding in findings if finding.status is not Status.OK)


def test_no_engine_is_one_finding_and_the_rest_is_still_asked(machine: Machine) -> None:
    findings = diagnose(replace(machine, open_engine=no_engine))
    assert not is_ready(findings)
    found = one(findings, "engine")
    assert (found.status, found.detail, found.fix) == (
        Status.MISSING,
        "no engine here",
        "start one",
    )
    assert one(findings, "key").status is Status.OK


def test_an_engine_that_hangs_is_bounded(machine: Machine) -> None:
    release = threading.Event()

    def hang() -> Engine:
        release.wait(30)
        raise EngineError("engine.late", "too late", fix="none")

    findings = diagnose(replace(machine, open_engine=hang, timeout_s=0.05))
    release.set()
    assert one(findings, "engine").detail == "no answer within 0.05 s"


def test_a_check_that_breaks_becomes_a_finding(machine: Machine) -> None:
    def broken(_: Path) -> int:
        raise RuntimeError("statvfs went wrong")

    found = one(diagnose(replace(machine, free_bytes=broken)), "disk")
    assert found.status is Status.MISSING
    assert "statvfs went wrong" in found.detail


def test_the_engine_is_always_closed(machine: Machine) -> None:
    closed: list[bool] = []

    class Watched(FakeEngine):
        def info(self) -> NoReturn:
            raise EngineError("engine.died", "gone in mid-sentence", fix="look at its log")

        def close(self) -> None:
            closed.append(True)

    findings = diagnose(replace(machine, open_engine=Watched))
    assert one(findings, "engine").detail == "gone in mid-sentence"
    assert closed == [True]


@pytest.mark.parametrize(
    ("free", "status"),
    [
        (100 * GIB, Status.OK),
        (5 * GIB, Status.OK),
        (5 * GIB - 1, Status.WARN),
        (GIB, Status.WARN),
        (GIB - 1, Status.MISSING),
        (0, Status.MISSING),
    ],
)
def test_disk(machine: Machine, free: int, status: Status) -> None:
    assert one(diagnose(replace(machine, free_bytes=lambda _: free)), "disk").status is status


def test_the_engines_own_disk_is_asked_where_it_can_be_seen(
    machine: Machine, tmp_path: Path
) -> None:
    info = replace(FAKE_INFO, data_root=str(tmp_path))
    findings = diagnose(replace(machine, open_engine=lambda: FakeEngine(info=info)))
    assert one(findings, "engine disk").detail == f"100.0 GiB free at {tmp_path}"


@pytest.mark.parametrize(
    ("python", "status"),
    [((3, 10), Status.MISSING), ((3, 11), Status.OK), ((3, 14), Status.OK), ((4, 0), Status.OK)],
)
def test_python(machine: Machine, python: tuple[int, int], status: Status) -> None:
    assert one(diagnose(replace(machine, python=python)), "python").status is status


def test_limits_that_the_engine_cannot_enforce(machine: Machine) -> None:
    info = replace(FAKE_INFO, unenforceable=("swap", "pids"))
    findings = diagnose(replace(machine, open_engine=lambda: FakeEngine(info=info)))
    found = one(findings, "limits")
    assert found.status is Status.WARN
    assert "swap, pids" in found.detail
    assert "waive: [swap, pids]" in found.fix


def test_an_image_that_is_not_there_asks_for_the_builder(machine: Machine) -> None:
    lacking = replace(machine, open_engine=lambda: FakeEngine(images=[]))
    findings = diagnose(lacking)
    assert one(findings, "image lexical").status is Status.MISSING
    assert one(findings, "image lexical").fix == "sealbench images build lexical"
    assert one(findings, "mmdebstrap").status is Status.OK
    bare = replace(lacking, find_tool=lambda _: None)
    assert one(diagnose(bare), "mmdebstrap").fix == "apt-get install mmdebstrap"


def test_images_that_nothing_has_needed_so_far_do_not_stand_in_the_way(machine: Machine) -> None:
    document = json.loads(lock(ID_A))
    document["images"]["code"] = {"linux/amd64": {"image_id": ID_B}}
    document["images"]["dense"] = {"linux/arm64": {"image_id": ID_B}}
    document["methods"] |= {"code": {"gst": METHOD}, "dense": {"vectors": METHOD}}
    machine.published_lock.write_text(json.dumps(document), encoding="ascii")
    findings = diagnose(machine)
    assert is_ready(findings)
    assert one(findings, "image lexical").status is Status.OK
    for name in ("code", "dense"):
        found = one(findings, f"image {name}")
        assert (found.status, found.detail) == (
            Status.WARN,
            "not built (built when a manifest needs it)",
        )
        assert found.fix.endswith(f"sealbench images build {name}")
    bare = diagnose(replace(machine, find_tool=lambda _: None))
    assert is_ready(bare)
    assert one(bare, "mmdebstrap").status is Status.WARN
    # Without any image that has methods nothing runs, and that is said.
    document["images"]["base"] = {"linux/amd64": {"image_id": ID_A}}
    document["images"]["lexical"] = {"linux/amd64": {"image_id": ID_B}}
    document["methods"]["base"] = {}
    machine.published_lock.write_text(json.dumps(document), encoding="ascii")
    findings = diagnose(machine)
    assert one(findings, "image base").status is Status.OK
    assert not is_ready(findings)
    assert not is_ready(diagnose(replace(machine, open_engine=lambda: FakeEngine(images=[]))))


def test_an_image_for_another_platform(machine: Machine) -> None:
    info = replace(FAKE_INFO, architecture="arm64")
    findings = diagnose(replace(machine, open_engine=lambda: FakeEngine(info=info)))
    found = one(findings, "image lexical")
    assert (found.status, found.detail) == (Status.MISSING, "not locked for linux/arm64")


@pytest.mark.parametrize(
    ("local_id", "status", "words"),
    [(ID_A, Status.OK, ""), (ID_B, Status.WARN, "is not the published one")],
)
def test_an_image_that_was_built_here(
    machine: Machine, local_id: str, status: Status, words: str
) -> None:
    path = machine.local_lock
    path.parent.mkdir(parents=True)
    path.write_bytes(lock(local_id))
    engine = FakeEngine(images=[fake_image(ID_A), fake_image(ID_B)])
    found = one(diagnose(replace(machine, open_engine=lambda: engine)), "image lexical")
    assert found.status is status
    assert words in found.detail


def test_a_broken_image_lock_is_told_with_its_fix(machine: Machine) -> None:
    (machine.published_lock).write_text("{", encoding="ascii")
    findings = diagnose(machine)
    assert one(findings, "engine").status is Status.OK
    found = one(findings, "images")
    assert found.status is Status.MISSING
    assert "lock" in found.detail
    assert "images lock" in found.fix


def remove(path: Path) -> None:
    path.unlink()


def open_up(path: Path) -> None:
    path.chmod(0o644)


@pytest.mark.parametrize(
    ("spoil", "fix"), [(remove, "sealbench keys generate"), (open_up, "chmod 600")]
)
def test_a_key_that_cannot_sign(
    machine: Machine, spoil: Callable[[Path], None], fix: str, tmp_path: Path
) -> None:
    spoil(tmp_path / "keys" / "default.pem")
    found = one(diagnose(machine), "key")
    assert found.status is Status.MISSING
    assert found.fix.startswith(fix)


def test_data_roots(machine: Machine, tmp_path: Path) -> None:
    root = tmp_path / "data"
    found = one(diagnose(replace(machine, data_root=root)), "data root")
    assert found.status is Status.MISSING
    (root / "empty").mkdir(parents=True)
    found = one(diagnose(replace(machine, data_root=root)), "data root")
    assert found.status is Status.WARN
    (root / "scifact").mkdir()
    (root / "scifact" / "corpus.jsonl").touch()
    found = one(diagnose(replace(machine, data_root=root)), "data root")
    assert (found.status, found.detail) == (Status.OK, f"{root}: scifact")


def test_optional_tools_never_stand_in_the_way(machine: Machine) -> None:
    findings = diagnose(replace(machine, find_tool=lambda _: None))
    assert is_ready(findings)
    assert one(findings, "openssl").status is Status.WARN


def test_the_table_has_every_fix_under_its_finding() -> None:
    findings = (
        Finding(name="python", status=Status.OK, detail="Python 3.12"),
        Finding(name="key", status=Status.MISSING, detail="none at \x1b[2J", fix="make one"),
    )
    assert as_text(findings) == (
        "ok       python  Python 3.12\n"
        "missing  key     none at \\x1b[2J\n"
        "                 fix: make one\n"
    )
    assert as_document(findings) == {
        "ready": False,
        "findings": [
            {"name": "python", "status": "ok", "detail": "Python 3.12", "fix": ""},
            {"name": "key", "status": "missing", "detail": "none at \x1b[2J", "fix": "make one"},
        ],
    }
    assert json.loads(json.dumps(as_document(findings)))["ready"] is False
