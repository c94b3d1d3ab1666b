"""Hosts, secrets and recordings on a real engine: what a container reaches, and what it leaves."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runner.engine.api import Engine
from runner.engine.docker import DockerEngine
from runner.model import Outcome
from runner.progress import make_reporter
from runner.protocol.load import Protocol
from runner.run import Host, RunOptions, RunResult, run_manifest
from runner.signals import CancelToken
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.llm_server import KEY, LlmServer
from tests.sealed import DATA_ROOT, PROTOCOL, TRUST
from tests.sealed import KEY as SIGNING_KEY
from tests.unit.reviewer_files import PEOPLE, write_compact
from tests.unit.test_expertise_task import frozen

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]

#: Says what it can reach, as JSON on stdout; answers every query with an error.
PROBE = r"""
import json, os, socket, stat, sys, urllib.request
import sealbench_net as net
port, other = int(sys.argv[1]), int(sys.argv[2])
found = {}

def attempt(name, do):
    try:
        found[name] = do()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"

def direct(host, port):
    with socket.create_connection((host, port), timeout=2):
        return "connected"

def status(url):
    return net.request("GET", url, timeout_s=10).body.decode()

attempt("direct", lambda: direct("127.0.0.1", port))
attempt("outside", lambda: direct("8.8.8.8", 53))
attempt("metadata_direct", lambda: direct("169.254.169.254", 80))
attempt("dns", lambda: socket.getaddrinfo("example.org", 80))
found["interfaces"] = [name for _, name in socket.if_nameindex()]
attempt("allowed", lambda: status(f"http://127.0.0.1:{port}/"))
attempt("other_port", lambda: status(f"http://127.0.0.1:{other}/"))
attempt("other_name", lambda: status(f"http://localhost:{port}/"))
attempt("metadata", lambda: status("http://169.254.169.254/latest/meta-data/"))
attempt("https", lambda: status("https://example.org/"))

def forwarded():
    net.forward()
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read().decode()

attempt("forwarded", forwarded)
attempt("secret", lambda: len(net.secret("LLM_API_KEY")))

def secret_mode():
    return oct(stat.S_IMODE(os.stat("/run/secrets/LLM_API_KEY").st_mode))

attempt("secret_mode", secret_mode)
attempt("secret_write", lambda: open("/run/secrets/LLM_API_KEY", "w") and "written")
attempt("log", lambda: print("the key is", net.secret("LLM_API_KEY")))
found["environ"] = sorted(name for name in os.environ if "SEALBENCH" in name)
found["run"] = sorted(os.listdir("/run")) if os.path.isdir("/run") else []
print("FOUND" + json.dumps(found))
with open("/out/rows.jsonl", "w") as rows:
    for line in open("/in/queries.jsonl"):
        row = {"query_id": json.loads(line)["_id"], "ranking": [], "latency_ms": None, "error": "x"}
        rows.write(json.dumps(row) + "\n")
"""


@pytest.fixture(scope="module", autouse=True)
def _image(engine: Engine) -> None:
    """The image, built here if the engine does not have it."""
    subprocess.run(
        [sys.executable, "-m", "runner.cli", "images", "build", "llm"],
        cwd=ROOT, check=True, capture_output=True, timeout=600,
    )  # fmt: skip


@pytest.fixture
def hello() -> Iterator[int]:
    """The port of a server that says hello to whoever comes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def run(manifest: Path, data_root: Path) -> RunResult:
    return run_manifest(
        manifest,
        RunOptions(key=SIGNING_KEY, data_root=data_root, out=manifest.with_suffix(".out")),
        host=Host(open_engine=DockerEngine),
        reporter=make_reporter("quiet", io.StringIO()),
        cancel=CancelToken(),
    )


def write_key(folder: Path) -> None:
    (folder / "llm.key").write_text(KEY + "\n")
    (folder / "llm.key").chmod(0o600)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def probe(folder: Path, hello: int, *lines: str) -> tuple[RunResult, dict[str, Any]]:
    """Run the probe with these lines in its entry; (the result, what it found)."""
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    (folder / "p.json").write_bytes(PROTOCOL.read_bytes())
    write_key(folder)
    command = json.dumps(["python3", "-c", PROBE, str(hello), str(port)])
    text = (
        "schema: sealbench/run/v1\nname: probe\nprotocol: p.json\nsplits: [all]\n"
        "limits: {wall: 60s, memory: 256MiB}\nmethods:\n  - name: probe\n    image: llm\n"
        f"    command: {command}\n" + "".join(f"    {line}\n" for line in lines)
    )
    (folder / "run.yaml").write_text(text)
    with other:
        result = run(folder / "run.yaml", DATA_ROOT)
    (record,) = result.outcomes
    log = next((result.bundle.path / "logs" / "probe").glob("*.stdout.log")).read_text()
    assert record.outcome is Outcome.OK, record.reason + log
    (line,) = [line for line in log.splitlines() if line.startswith("FOUND")]
    assert log.startswith("the key is [secret]\n") == any("secrets" in line for line in lines)
    return result, json.loads(line.removeprefix("FOUND"))


def test_an_allowed_host_is_reached_and_nothing_else(tmp_path: Path, hello: int) -> None:
    lines = (
        f"network: {{allow: ['127.0.0.1:{hello}']}}",
        "secrets: {LLM_API_KEY: {file: llm.key}}",
    )
    result, found = probe(tmp_path, hello, *lines)
    assert found["allowed"] == found["forwarded"] == "hello"
    assert found["interfaces"] == ["lo"]
    for name in ("direct", "outside", "metadata_direct", "dns"):
        assert "Error" in found[name] or "error" in found[name], name
    for name in ("other_port", "other_name", "metadata", "https"):
        assert found[name] == "NetworkError: refused", name
    assert found["secret"] == len(KEY)
    assert found["secret_mode"] == "0o400"
    assert "Error" in found["secret_write"]
    assert "SEALBENCH_PROXY" in found["environ"]
    (record,) = result.outcomes
    use = record.evidence.network
    assert use is not None
    assert use.hosts[f"127.0.0.1:{hello}"].connections == 2
    assert use.refused_total == 4
    assert set(use.refused) >= {"169.254.169.254:80", "example.org:443", f"localhost:{hello}"}
    assert KEY.encode() not in everything(result.bundle.path.parent)
    assert not list(tmp_path.rglob("secret-*"))


def test_without_an_allow_list_there_is_no_way_out(tmp_path: Path, hello: int) -> None:
    result, found = probe(tmp_path, hello)
    for name in ("allowed", "other_port", "metadata", "https"):
        assert found[name] == "NetworkError: no-proxy"
    assert "Error" in found["forwarded"]
    assert found["secret"].startswith("LookupError")
    assert found["interfaces"] == ["lo"]
    assert "SEALBENCH_PROXY" not in found["environ"]
    assert not {"sealbench", "secrets"} & set(found["run"])
    assert result.outcomes[0].evidence.network is None


@pytest.fixture
def toy(tmp_path: Path) -> tuple[Path, Protocol]:
    """A folder with the toy's data below ``root`` and its protocol."""
    protocol = frozen(write_compact(tmp_path / "root"))
    (tmp_path / "toy.protocol.json").write_bytes(protocol.raw)
    write_key(tmp_path)
    return tmp_path, protocol


def scored(toy: tuple[Path, Protocol], name: str, entry: str) -> tuple[RunResult, VerifyReport]:
    """Run the method with this entry, and verify."""
    folder, protocol = toy
    text = (
        f"schema: sealbench/run/v1\nname: {name}\nprotocol: toy.protocol.json\nsplits: [all]\n"
        f"limits: {{wall: 60s, memory: 256MiB}}\nmethods:\n  - name: {name}\n    image: llm\n"
        f"    method: llm\n{entry}"
    )
    (folder / f"{name}.yaml").write_text(text)
    result = run(folder / f"{name}.yaml", folder / "root")
    report = verify_bundle(
        VerifyRequest(
            bundle=result.bundle.path,
            protocol_id=protocol.protocol_id,
            protocol=protocol,
            trust=TRUST,
            data_root=folder / "root",
        )
    )
    return result, report


def rows(result: RunResult, name: str) -> list[bytes]:
    parts = sorted((result.bundle.path / "rows" / name).rglob("part-*.jsonl"))
    return [part.read_bytes() for part in parts]


def test_a_language_model_is_asked_recorded_and_replayed(toy: tuple[Path, Protocol]) -> None:
    folder, _ = toy
    config = "backoff_s: 0.05, timeout_s: 1.0, attempts: 2, model: local"
    ways = {"Parsing Of Trees": ["500", "ok"], "Robots That Walk": ["garbage", "ok"]}
    with LlmServer(ways) as server:
        config += f", endpoint: '{server.endpoint}'"
        asked, report = scored(
            toy,
            "asks",
            f"    config: {{{config}}}\n    network: {{allow: ['{server.host}']}}\n"
            "    secrets: {LLM_API_KEY: {file: llm.key}}\n",
        )
        requests = len(server.requests)
    assert [record.outcome for record in asked.outcomes] == [Outcome.OK] * 2
    assert report.faults == ()
    assert report.recomputed.holds
    loss: Any = asked.results["aggregate"]
    assert loss[0]["mean_score"] is not None
    uses = [record.evidence.network for record in asked.outcomes]
    assert sum(use.hosts[server.host].connections for use in uses if use) == requests
    found = everything(asked.bundle.path.parent)
    assert KEY.encode() not in found
    assert not [who for who in PEOPLE if who.encode() in found]
    recordings = sorted((asked.bundle.path / "artifacts" / "asks").iterdir())
    assert [path.name for path in recordings] == ["toy-1.jsonl", "toy-2.jsonl"]
    for path in recordings:
        (folder / path.name).write_bytes(path.read_bytes())
    again, report = scored(
        toy,
        "again",
        f"    config: {{{config}, replay: true}}\n    recordings: '{{dataset}}.jsonl'\n",
    )
    assert [record.outcome for record in again.outcomes] == [Outcome.OK] * 2
    assert report.faults == ()
    assert rows(again, "again") == rows(asked, "asks") != []
    assert again.outcomes[0].evidence.network is None
