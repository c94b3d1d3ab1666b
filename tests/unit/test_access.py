"""Whole runs with hosts, secrets and recordings on the fake engine: what crosses and what shows."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from runner.bundle.manifest import FileEntry, Role, parse_manifest
from runner.bundle.parts import JSONL
from runner.engine.fake import Script, Step
from runner.errors import KeyError_
from runner.model import HostUse, Outcome
from tests.sealed import Method, Sandbox, overlap, sandbox, write_rows
from tests.unit.test_verify import edit_lines, sign_again

VALUE = "sk-Very-Secret-0123456789"
RESPONSE = json.dumps({"key": "a", "status": 200}) + "\n"


@pytest.fixture
def upstream() -> Iterator[int]:
    """The port of a server that says hello."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def box(folder: Path, act: Method, *lines: str, exit_code: int = 0, log: bytes = b"") -> Sandbox:
    """A run of one method that has these lines in its entry."""
    key = folder / "llm.key"
    folder.mkdir(exist_ok=True)
    key.write_text(VALUE + "\n", encoding="utf-8")
    key.chmod(0o600)
    # Not at once: the start must have returned, as it has before a real method can do anything.
    steps = (Step(act=act, at_s=0.1), Step(log=log[:20], at_s=0.1), Step(log=log[20:], at_s=0.11))
    script = Script(steps=steps, exit_after_s=0.3, exit_code=exit_code)
    made = sandbox(folder, "asks", scripts={"asks": script})
    text = made.manifest.read_text(encoding="utf-8")
    made.manifest.write_text(text + "".join(f"    {line}\n" for line in lines), encoding="utf-8")
    return made


def via(mounts: Mapping[str, Path], data: bytes) -> bytes:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        folder = mounts["/run/sealbench/proxy.sock"]
        opened = os.open(folder.parent, os.O_RDONLY)
        try:
            connection.connect(f"/proc/self/fd/{opened}/{folder.name}")
        finally:
            os.close(opened)
        connection.sendall(data)
        found = b""
        while block := connection.recv(1 << 16):
            found += block
        return found


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_method_reaches_its_host_and_no_other(tmp_path: Path, upstream: int) -> None:
    seen: dict[str, object] = {}

    def act(mounts: Mapping[str, Path]) -> None:
        socket_file = mounts["/run/sealbench/proxy.sock"]
        seen["mode"] = socket_file.stat().st_mode & 0o777
        seen["good"] = via(mounts, f"GET http://127.0.0.1:{upstream}/ HTTP/1.1\r\n\r\n".encode())
        seen["bad"] = via(mounts, b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n")
        (mounts["/out"] / "artifacts").mkdir()
        (mounts["/out"] / "artifacts" / "responses.jsonl").write_text(RESPONSE)
        overlap(mounts)

    made = box(tmp_path / "a", act, f"network: {{allow: ['127.0.0.1:{upstream}']}}")
    result = made.run()
    (record,) = result.outcomes
    assert record.outcome is Outcome.OK, record.reason
    assert seen["mode"] == 0o600
    assert b"hello" in bytes(seen["good"])  # type: ignore[call-overload]  # bytes
    assert b"403" in bytes(seen["bad"])  # type: ignore[call-overload]  # bytes
    use = record.evidence.network
    assert use is not None
    assert isinstance(use.hosts[f"127.0.0.1:{upstream}"], HostUse)
    assert use.hosts[f"127.0.0.1:{upstream}"].connections == 1
    assert (dict(use.refused), use.capped) == ({"169.254.169.254:80": 1}, False)
    bundle = made.out / "bundle"
    (recorded,) = (bundle / "artifacts" / "asks").iterdir()
    assert recorded.read_text() == RESPONSE
    assert record.evidence.harvest_refused == ()
    assert any("could reach" in note for note in result.results["notes"])  # type: ignore[attr-defined]  # a list
    report = made.verify()
    assert report.faults == ()
    assert report.recomputed.holds


def test_without_an_allow_list_there_is_no_socket(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def act(mounts: Mapping[str, Path]) -> None:
        seen["mounts"] = sorted(mounts)
        (mounts["/out"] / "artifacts").mkdir()
        (mounts["/out"] / "artifacts" / "responses.jsonl").write_text(RESPONSE)
        overlap(mounts)

    made = box(tmp_path / "a", act)
    (record,) = made.run().outcomes
    assert record.evidence.network is None
    assert seen["mounts"] == ["/etc/hosts", "/in", "/out"]
    assert not (made.out / "bundle" / "artifacts").exists()
    assert "not carried" in record.evidence.harvest_refused[0]


def test_a_secret_is_a_passing_file_and_shows_nowhere(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def act(mounts: Mapping[str, Path]) -> None:
        path = mounts["/run/secrets/KEY"]
        seen["there"] = path.exists()  # a real container has it mounted by now
        seen["folder"] = sorted(path.name for path in path.parent.iterdir())
        overlap(mounts)

    log = b"key is " + VALUE.encode() + b" and " + VALUE.encode() + b"\n"
    made = box(tmp_path / "a", act, "secrets: {KEY: {file: llm.key}}", log=log)
    result = made.run()
    (record,) = result.outcomes
    assert record.outcome is Outcome.OK, record.reason
    assert seen["there"] is False
    assert "secret-KEY" not in seen["folder"]  # type: ignore[operator]  # a list
    found = everything(made.out)
    assert VALUE.encode() not in found
    assert b"key is [secret] and [secret]\n" in found
    assert made.verify().faults == ()


def test_rows_with_a_secret_do_not_cross(tmp_path: Path) -> None:
    def act(mounts: Mapping[str, Path]) -> None:
        (mounts["/out"] / VALUE).write_text("x")
        write_rows(mounts, '{"query_id": "q", "error": "HTTP 401: ' + VALUE + '"}\n')

    made = box(tmp_path / "a", act, "secrets: {KEY: {env: SOME_KEY}}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_KEY", VALUE)
        (record,) = made.run().outcomes
    assert record.outcome is Outcome.INVALID_OUTPUT
    assert "rows.jsonl: holds the secret KEY" in record.reason
    assert record.evidence.harvest_refused[0] == "rows.jsonl: holds the secret KEY"
    assert VALUE.encode() not in everything(made.out)
    assert made.verify().faults == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": "' + VALUE.encode() + b'"}\n', "line 1 holds the secret KEY"),
        (b'{"a": 1}\n{"a": 1, "a": 2}\n', "line 2: "),
        (b'{"a": NaN}\n', "line 1: "),
        (b"[1]\n", "line 1 is no JSON object"),
        (b'{"a": 1}', "no line feed"),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}\n', "too long"),
    ],
)
def test_recordings_that_do_not_cross(tmp_path: Path, content: bytes, why: str) -> None:
    def act(mounts: Mapping[str, Path]) -> None:
        (mounts["/out"] / "artifacts").mkdir()
        (mounts["/out"] / "artifacts" / "responses.jsonl").write_bytes(content)
        overlap(mounts)

    lines = ("network: {allow: [a.example]}", "secrets: {KEY: {file: llm.key}}",
             "limits: {output: 8MiB}")  # fmt: skip
    made = box(tmp_path / "a", act, *lines)
    text = made.manifest.read_text().replace("output: 1MiB", "output: 8MiB", 1)
    made.manifest.write_text(text)
    (record,) = made.run().outcomes
    assert record.outcome is Outcome.OK, record.reason
    (refused,) = [r for r in record.evidence.harvest_refused if r.startswith("artifacts/")]
    assert why in refused
    assert not (made.out / "bundle" / "artifacts").exists()
    assert VALUE.encode() not in everything(made.out)


def test_nothing_starts_without_the_secret(tmp_path: Path) -> None:
    made = box(tmp_path / "a", overlap, "secrets: {KEY: {file: absent.key}}")
    engine = made.engine()
    with pytest.raises(KeyError_, match="secret KEY"):
        made.run(engine=engine)
    assert engine.calls == []
    assert not made.out.exists()


def test_a_recording_is_mounted_as_it_was_planned(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def act(mounts: Mapping[str, Path]) -> None:
        path = mounts["/recordings/responses.jsonl"]
        seen["text"], seen["mode"] = path.read_text(), path.stat().st_mode & 0o777
        overlap(mounts)

    made = box(tmp_path / "a", act, "recordings: '{dataset}.jsonl'")
    made.manifest.parent.joinpath("quickstart-mini.jsonl").write_text(RESPONSE)
    (record,) = made.run().outcomes
    assert record.outcome is Outcome.OK, record.reason
    assert seen == {"text": RESPONSE, "mode": 0o444}
    assert made.verify().faults == ()


def test_a_recording_that_changed_is_not_replayed(tmp_path: Path) -> None:
    from runner.access import Given, Withheld, open_access
    from runner.model import ImportedFile, Limits, MethodPlan

    file = tmp_path / "toy.jsonl"
    file.write_text(RESPONSE)
    planned = ImportedFile(dataset="toy", sha256="sha256:" + "0" * 64, size=len(RESPONSE))
    method = MethodPlan(
        name="m", method_id="", image=None, command=(), config={}, limits=Limits(),
        recordings=(planned,),
    )  # fmt: skip
    given = Given(recordings={"toy": file})
    (tmp_path / "work").mkdir()
    with (
        pytest.raises(Withheld, match="was changed"),
        open_access(method, "toy", given, tmp_path / "work", "0:0"),
    ):
        pass


def _no_network(records: list[dict[str, Any]]) -> None:
    del records[0]["evidence"]["network"]


def _another_host(records: list[dict[str, Any]]) -> None:
    hosts = records[0]["evidence"]["network"]["hosts"]
    hosts["other.example:443"] = hosts.pop("a.example:443")


@pytest.mark.parametrize("change", [_no_network, _another_host])
def test_forged_evidence_of_hosts_is_named(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    made = box(tmp_path / "a", overlap, "network: {allow: [a.example]}")
    made.run()
    bundle = made.out / "bundle"
    edit_lines(bundle / "outcomes.jsonl", change)
    sign_again(bundle)
    messages = [fault.message for fault in made.verify().faults]
    assert "the hosts that it could reach are not the plan's" in messages


def test_a_recording_of_a_method_without_hosts_is_a_stray(tmp_path: Path) -> None:
    made = box(tmp_path / "a", overlap)
    made.run()
    bundle, path = made.out / "bundle", "artifacts/asks/quickstart-mini.jsonl"
    (bundle / path).parent.mkdir(parents=True)
    (bundle / path).write_text(RESPONSE)
    listed = parse_manifest((bundle / "manifest.json").read_bytes())
    entry = FileEntry(
        path=path, size=1, sha256="0" * 64, role=Role.ARTIFACT, media_type=JSONL, rows=1
    )
    files = tuple(sorted((*listed.files, entry), key=lambda one: one.path))
    (bundle / "manifest.json").write_bytes(replace(listed, files=files).to_bytes())
    sign_again(bundle)
    assert {(fault.code, fault.file) for fault in made.verify().faults} == {
        ("bundle.stray-file", path),
        ("bundle.contradiction", "ro-crate-metadata.json"),  # it lists the files, too
    }
