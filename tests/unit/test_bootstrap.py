"""The pure parts of the first-use set-up, and its children, with no engine and no package index."""

from __future__ import annotations

import http.server
import io
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tools import bootstrap, bundles, child, endpoints, engine, environment, images, steps, system
from tools.endpoints import Answer, Endpoint
from tools.setup import Setup

ROOT = Path(__file__).parents[2]
NOBODY = system.System(root=False, debian=True, systemd=True, may_install=True)
ADMIN = system.System(root=True, debian=True, systemd=False, may_install=True)


def with_facts(base: system.System, **changes: bool) -> system.System:
    facts = {
        name: getattr(base, name) for name in ("root", "debian", "systemd", "may_install")
    } | changes
    return system.System(**facts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID=debian\n", True),
        ('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n', True),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', True),
        ("ID='debian'\n", True),
        ("ID=fedora\n", False),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', False),
        ("VERSION_ID=debian\n", False),
        ("", False),
    ],
)
def test_which_systems_are_set_up_automatically(text: str, expected: bool) -> None:
    assert system.is_debian(text) is expected


@pytest.mark.parametrize(
    ("facts", "can", "why"),
    [
        (ADMIN, True, ""),
        (NOBODY, False, "installing needs root"),
        (with_facts(ADMIN, debian=False), False, "only Debian and Ubuntu"),
        (with_facts(ADMIN, may_install=False), False, "ENGINE_INSTALL=0"),
    ],
)
def test_when_we_install(facts: system.System, can: bool, why: str) -> None:
    assert facts.can_install is can
    reason = system.why_not_install(facts)
    assert why in reason
    assert bool(reason) is not can


@pytest.mark.parametrize(("value", "may"), [(None, True), ("1", True), ("", True), ("0", False)])
def test_engine_install_zero_forbids(value: str | None, may: bool) -> None:
    env = {} if value is None else {"ENGINE_INSTALL": value}
    assert system.look(env).may_install is may


def test_docker_host_is_an_order() -> None:
    found = endpoints.candidates({"DOCKER_HOST": "tcp://10.0.0.1:2375", "XDG_RUNTIME_DIR": "/u"})
    assert [item.url for item in found] == ["tcp://10.0.0.1:2375"]


def test_sockets_are_tried_in_a_fixed_order() -> None:
    found = endpoints.candidates({"XDG_RUNTIME_DIR": "/run/user/1"})
    assert [item.url for item in found] == [
        "unix:///var/run/docker.sock",
        "unix:///run/user/1/docker.sock",
        "unix:///run/user/1/podman/podman.sock",
        "unix:///run/podman/podman.sock",
    ]
    assert len(endpoints.candidates({})) == 2


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ({"Version": "20.10.24", "Components": [{"Name": "Engine"}]}, "Docker 20.10.24"),
        ({"Version": "4.3.1", "Components": [{"Name": "Podman Engine"}]}, "Podman 4.3.1"),
        ({"Version": "1"}, "Docker 1"),
        ({"Components": None}, "Docker of unknown version"),
        (["nonsense"], "an engine of unknown version"),
    ],
)
def test_naming_an_engine(version: object, text: str) -> None:
    assert endpoints.describe(version) == text


GONE = Endpoint(url="unix:///nowhere/docker.sock", origin="the Docker socket")
SILENT = Answer(ok=False, detail="no socket there")


@pytest.mark.parametrize(
    ("origin", "denied", "facts", "installed", "words"),
    [
        ("DOCKER_HOST", False, ADMIN, True, "DOCKER_HOST names does not answer"),
        ("the Docker socket", True, NOBODY, True, "this user may not use it"),
        ("DOCKER_HOST", True, NOBODY, True, "this user may not use it"),
        ("the Docker socket", False, NOBODY, False, "installing needs root"),
        ("the Docker socket", False, NOBODY, True, "installing needs root"),
        ("s", False, with_facts(ADMIN, may_install=False), True, "ENGINE_INSTALL=0"),
        ("s", False, with_facts(ADMIN, debian=False), False, "only Debian and Ubuntu"),
        ("s", False, with_facts(ADMIN, debian=False), True, None),
        ("s", False, ADMIN, False, None),
        ("s", False, ADMIN, True, None),
    ],
)
def test_when_to_give_up_on_an_engine(
    origin: str, denied: bool, facts: system.System, installed: bool, words: str | None
) -> None:
    answers = [
        (Endpoint(url=GONE.url, origin=origin), Answer(ok=False, detail="silent", denied=denied))
    ]
    refusal = engine.why_no_engine(answers, facts, installed=installed)
    if words is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.exit_code == 7
        assert words in refusal.message
        assert refusal.fix


@pytest.mark.parametrize(
    ("log", "message", "fix"),
    [
        ("failed to start daemon: Devices cgroup isn't mounted", "control groups", "cgroupfs"),
        ("cgroups: cgroup mountpoint does not exist: unknown", "control groups", "cgroupfs"),
        ("error initializing graphdriver: driver not supported", "overlay", "modprobe"),
        ("write /var/lib/docker/x: no space left on device", "disk is full", "free"),
        ("pid file found, ensure docker is not running", "docker.pid", "remove"),
        ("mount callback failed: operation not permitted", "lacks rights", "--privileged"),
        ("something else", "its log ends with", "DOCKER_HOST"),
    ],
)
def test_a_daemons_log_is_explained(tmp_path: Path, log: str, message: str, fix: str) -> None:
    path = tmp_path / "dockerd.log"
    path.write_text(f"level=info starting\n{log}\n", encoding="utf-8")
    said, helps = engine.explain_log(path)
    assert message in said
    assert fix in helps


def test_a_missing_log_is_explained_too(tmp_path: Path) -> None:
    assert engine.explain_log(tmp_path / "none")[0] == "its log ends with"
    assert steps.tail(tmp_path / "none") == ""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = {"/version": {"Version": "9.9"}, "/images/sha256%3Aaa/json": {"Id": "sha256:aa"}}
        body = json.dumps(known.get(self.path, {"message": "no such image"})).encode()
        self.send_response(200 if self.path in known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Endpoint]:
    path = tmp_path / "engine.sock"
    server = _Server(str(path), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Endpoint(url=f"unix://{path}", origin="the test")
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_engine_that_answers(served: Endpoint) -> None:
    assert endpoints.probe(served) == Answer(ok=True, detail="Docker 9.9")
    assert endpoints.has_image(served, "sha256:aa")
    assert not endpoints.has_image(served, "sha256:bb")


def test_a_missing_socket_and_one_that_nobody_serves(tmp_path: Path) -> None:
    assert endpoints.probe(GONE) == SILENT
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    dead = endpoints.probe(Endpoint(url=f"unix://{path}", origin="the test"))
    assert not dead.ok
    assert "refused" in dead.detail
    assert not endpoints.has_image(GONE, "sha256:aa")


def test_an_engine_that_hangs_is_given_up_in_time(tmp_path: Path) -> None:
    path = tmp_path / "hangs.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        answer = endpoints.probe(Endpoint(url=f"unix://{path}", origin="the test"), 0.05)
    assert not answer.ok
    assert "timed out" in answer.detail


def test_waiting_ends_when_the_process_is_dead() -> None:
    assert not engine.wait_for(GONE, 60, alive=lambda: False)
    assert not engine.wait_for(GONE, 0.0, alive=lambda: True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with locks and an environment that looks as if it were made."""
    root = tmp_path / "checkout"
    (root / "requirements").mkdir(parents=True)
    environment.lock_path(root, False).write_text("a==1 --hash=sha256:00\n", encoding="ascii")
    environment.lock_path(root, True).write_text("a==1\nb==2\n", encoding="ascii")
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return root


def stamp(root: Path, dev: bool) -> None:
    text = environment.fingerprint(root, dev)
    (root / ".venv" / environment.STAMP).write_text(text, encoding="ascii")


def test_an_environment_is_ready_only_with_its_stamp(checkout: Path) -> None:
    venv = checkout / ".venv"
    assert not environment.is_ready(checkout, venv, dev=False)
    stamp(checkout, dev=False)
    assert environment.is_ready(checkout, venv, dev=False)
    assert not environment.is_ready(checkout, venv, dev=True)
    stamp(checkout, dev=True)
    assert environment.is_ready(checkout, venv, dev=True)
    assert environment.is_ready(checkout, venv, dev=False)


def test_a_changed_lock_makes_the_environment_stale(checkout: Path) -> None:
    stamp(checkout, dev=False)
    environment.lock_path(checkout, False).write_text("a==2\n", encoding="ascii")
    assert not environment.is_ready(checkout, checkout / ".venv", dev=False)


def test_a_moved_checkout_makes_the_environment_stale(checkout: Path) -> None:
    stamp(checkout, dev=False)
    moved = checkout.rename(checkout.with_name("moved"))
    assert not environment.is_ready(moved, moved / ".venv", dev=False)


def test_a_vanished_python_makes_the_environment_stale(checkout: Path) -> None:
    stamp(checkout, dev=False)
    link = checkout / ".venv" / "bin" / "python"
    link.unlink()
    link.symlink_to("/nowhere/python3")
    assert not environment.is_ready(checkout, checkout / ".venv", dev=False)


def test_nothing_is_installed_when_all_is_ready(checkout: Path) -> None:
    stamp(checkout, dev=False)
    told = io.StringIO()
    site = system.Site(root=checkout, env={}, system=NOBODY)
    with steps.Steps(told).step("Python environment") as step:
        environment.ensure(site, step, dev=False)
    assert told.getvalue() == "ok Python environment: up to date (0.0 s)\n"
    assert not site.logs.exists()


def test_the_launcher_works_anywhere_and_is_not_fooled_by_a_local_folder(tmp_path: Path) -> None:
    root = tmp_path / "it's a checkout"
    venv = root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    for folder in ("runner", "elsewhere/runner"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    (root / "runner" / "cli.py").write_text("import sys\nprint('ours', sys.argv[1:])\n")
    (root / "elsewhere" / "runner" / "cli.py").write_text("print('theirs')\n")
    environment.link_source(root, venv)
    command = [str(venv / "bin" / "sealbench"), "plan", "a b"]
    done = subprocess.run(
        command, cwd=root / "elsewhere", capture_output=True, text=True, check=True
    )
    assert done.stdout == "ours ['plan', 'a b']\n"


def test_settings_that_send_packages_elsewhere_are_dropped() -> None:
    env = {"PIP_TARGET": "/x", "PYTHONPATH": "/y", "PIP_FIND_LINKS": "/wheels", "HOME": "/h"}
    assert environment.clean_env(env) == {"PIP_FIND_LINKS": "/wheels", "HOME": "/h"}


def test_a_failed_command_shows_the_end_of_its_output(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    script = "import sys; print(*range(40), sep='\\n'); sys.exit(3)"
    with pytest.raises(steps.SetupError) as caught:
        steps.quietly([sys.executable, "-c", script], log, fix="do this")
    assert "exit code 3" in caught.value.message
    assert caught.value.message.endswith("    39")
    assert caught.value.message.count("\n") == steps.TAIL_LINES
    assert str(log) in caught.value.fix
    with pytest.raises(steps.SetupError, match="cannot be run"):
        steps.quietly(["/nowhere/tool"], log, fix="do this")


def test_steps_say_what_they_do_and_how_long() -> None:
    moments = iter([10.0, 12.34, 20.0])
    told = io.StringIO()
    teller = steps.Steps(told, clock=lambda: next(moments))
    with teller.step("Images") as step:
        step.working("building")
        step.done("2 built")
    with pytest.raises(RuntimeError), teller.step("Key"):
        raise RuntimeError
    assert told.getvalue() == ".. Images: building\nok Images: 2 built (2.3 s)\n"


def test_missing_tools_are_named_with_their_packages() -> None:
    site = system.Site(root=ROOT, env={}, system=NOBODY)
    wanted = {"sh": "dash", "no-such-tool-a": "pack-a", "no-such-tool-b": "pack-b"}
    with steps.Steps(io.StringIO()).step("Tools") as step:
        with pytest.raises(steps.SetupError) as caught:
            system.ensure_tools(wanted, site, step)
        system.ensure_tools({"sh": "dash"}, site, step)
    assert caught.value.exit_code == 22
    assert "no-such-tool-a, no-such-tool-b" in caught.value.message
    assert "apt-get install pack-a pack-b" in caught.value.fix


def test_a_childs_exit_code_is_passed_on() -> None:
    env = dict(os.environ)
    assert child.run_child([sys.executable, "-c", "raise SystemExit(20)"], env) == 20
    killed = "import os; os.kill(os.getpid(), 9)"
    assert child.run_child([sys.executable, "-c", killed], env) == 137


def test_stopping_us_lets_the_child_end_its_work() -> None:
    """TERM is passed on, Ctrl-C (to the whole group) is left to the child; we outlive both."""
    sealing = (
        "import signal, sys, time\n"
        "seen = []\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, lambda n, f: seen.append(n))\n"
        "print('ready', flush=True)\n"
        "while len(seen) < 2: time.sleep(0.01)\n"
        "sys.exit(21)\n"
    )
    ours = (
        "import os, sys; from tools.child import run_child\n"
        f"sys.exit(run_child([sys.executable, '-c', {sealing!r}], dict(os.environ)))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", ours], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == b"ready\n"
        os.killpg(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 21


def test_a_childs_json_error_becomes_ours() -> None:
    where = {"file": "m.yaml", "line": 3, "column": None, "json_path": "$.x"}
    answer = {"code": "manifest.x", "message": "bad", "fix": "mend it", "where": where}
    script = f"print({json.dumps(answer)!r}); raise SystemExit(3)"
    with pytest.raises(steps.SetupError) as caught:
        child.ask_child([sys.executable, "-c", script], os.environ)
    assert (caught.value.message, caught.value.fix) == ("m.yaml:3: bad [manifest.x]", "mend it")
    assert caught.value.exit_code == 3
    good = 'import sys; print(\'{"argv": "%s"}\' % sys.argv[-1])'
    assert child.ask_child([sys.executable, "-c", good, "x"], os.environ) == {"argv": "x"}
    with pytest.raises(steps.SetupError, match="failed with exit code 1") as caught:
        child.ask_child([sys.executable, "-c", "raise RuntimeError('why')"], os.environ)
    assert "RuntimeError: why" in caught.value.message


LOCK = {
    "schema": "sealbench/images-lock/v1",
    "images": {
        "base": {"linux/amd64": {"image_id": "sha256:00"}},
        "lexical": {
            "linux/amd64": {"image_id": "sha256:aa"},
            "linux/arm64": {"image_id": "sha256:cc"},
        },
    },
    "methods": {"lexical": {"bm25s": {}}},
}


@pytest.fixture
def image_inputs(tmp_path: Path) -> Path:
    """A checkout with an image lock and one source file."""
    (tmp_path / "images" / "lexical").mkdir(parents=True)
    (tmp_path / images.PUBLISHED).write_text(json.dumps(LOCK), encoding="ascii")
    (tmp_path / "images" / "lexical" / "method.py").write_text("1\n", encoding="ascii")
    return tmp_path


def write_local_lock(root: Path, image_id: str) -> None:
    local = {"images": {"lexical": {"linux/amd64": {"image_id": image_id}}}, "methods": {}}
    (root / images.LOCAL).parent.mkdir(parents=True, exist_ok=True)
    (root / images.LOCAL).write_text(json.dumps(local), encoding="ascii")


def test_the_local_lock_wins_and_every_image_must_have_an_entry(image_inputs: Path) -> None:
    both = ("base", "lexical")
    assert images.locked_ids(image_inputs, both, "linux/amd64") == ("sha256:00", "sha256:aa")
    assert images.locked_ids(image_inputs, ("lexical",), "linux/arm64") == ("sha256:cc",)
    assert images.locked_ids(image_inputs, both, "linux/arm64") == ()
    write_local_lock(image_inputs, "sha256:bb")
    assert images.locked_ids(image_inputs, ("lexical",), "linux/amd64") == ("sha256:bb",)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"images": [], "methods": 3}', "null"])
def test_a_broken_lock_is_left_to_the_command_that_explains_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / images.PUBLISHED).write_text(text, encoding="ascii")
    assert images.locked_ids(tmp_path, ("lexical",), "linux/amd64") == ()


def test_images_are_ready_while_inputs_and_engine_agree(
    image_inputs: Path, served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "this_platform", lambda: "linux/amd64")
    site, names = system.Site(root=image_inputs, env={}, system=NOBODY), ("lexical",)
    assert not images.are_ready(site, names, served)  # never built
    images.record(site, ("lexical",))
    images.record(site, ("other",))  # building another one forgets nothing
    assert images.are_ready(site, names, served)
    assert not images.are_ready(site, ("base", "lexical"), served)  # base was not built
    assert not images.are_ready(site, names, GONE)
    (image_inputs / "images" / "lexical" / "method.py").write_text("2\n", encoding="ascii")
    assert not images.are_ready(site, names, served)  # a source changed
    images.record(site, names)
    assert images.are_ready(site, names, served)
    write_local_lock(image_inputs, "sha256:bb")  # a rebuild came out different
    images.record(site, names)
    assert not images.are_ready(site, names, served)  # and the engine lost it


def test_a_run_builds_only_what_it_uses(image_inputs: Path) -> None:
    for name in ("base", "dense", "lexical"):
        (image_inputs / "images" / name).mkdir(exist_ok=True)
        (image_inputs / "images" / name / "image.toml").touch()
    known = images.recipes(image_inputs)
    assert known == ("base", "dense", "lexical")
    methods = [{"image": {"name": name}} for name in ("lexical", "example.org/theirs", "lexical")]
    assert images.needed({"methods": methods}, known) == ("lexical",)
    assert images.needed({}, known) == ()


def write_bundle(folder: Path, benchmark: str) -> Path:
    folder.mkdir(parents=True)
    document = {"benchmark": {"id": benchmark}}
    (folder / "manifest.json").write_text(json.dumps(document), encoding="ascii")
    return folder


def test_the_claimed_benchmark_is_found_in_folder_parent_and_tar(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "out" / "bundle", "tiny-v1")
    tar = tmp_path / "bundle.tar"
    with tarfile.open(tar, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("receipt.dsse.json", "manifest.json"):
            (bundle / name).touch()
            archive.add(bundle / name, name)
    for path in (bundle, bundle.parent, tar):
        assert bundles.claimed_benchmark(path) == "tiny-v1"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"benchmark": 3}'])
def test_an_unreadable_bundle_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="ascii")
    (tmp_path / "x.tar").write_text(text, encoding="ascii")
    for path in (tmp_path, tmp_path / "x.tar", tmp_path / "nowhere"):
        with pytest.raises(steps.SetupError, match=r"holds no readable manifest\.json") as caught:
            bundles.claimed_benchmark(path)
        assert caught.value.exit_code == 11


class Recording(Setup):
    """A set-up that makes nothing ready and calls nobody."""

    def __init__(self, **env: str) -> None:
        super().__init__({"PATH": os.environ["PATH"], **env}, steps.Steps(io.StringIO()))
        self.done: list[str] = []

    def prepare_environment(self, *, dev: bool = False) -> None:
        self.done.append("environment")

    def prepare_engine(self, names: Sequence[str]) -> None:
        self.done.append("engine")

    def call(self, *arguments: str) -> int:
        self.done += arguments
        return 0


@pytest.mark.parametrize("asked", [{}, {"EMBEDDINGS": "20"}])
def test_only_embeddings_make_verify_look_for_an_engine(asked: dict[str, str]) -> None:
    setup = Recording(BUNDLE="b", PROTOCOL="sha256:x", TRUST="t", DATA_ROOT="d", **asked)
    assert bootstrap.verify(setup) == 0
    command = ["verify", "b", "--protocol", "sha256:x", "--trust", "t", "--data-root", "d"]
    if asked:
        assert setup.done == ["environment", "engine", *command, "--embeddings", "20"]
    else:
        assert setup.done == ["environment", *command]


def test_a_claim_chooses_only_among_our_own_protocols(tmp_path: Path) -> None:
    protocol = tmp_path / "tiny-v1.protocol.json"
    content = {"benchmark": {"id": "tiny-v1"}, "datasets": [{"name": "a"}, {"name": "b"}]}
    protocol.write_text(json.dumps(content), encoding="ascii")
    (tmp_path / "broken.protocol.json").write_text("{", encoding="ascii")
    known = bundles.own_protocols(tmp_path)
    assert known == {"tiny-v1": protocol}
    assert bundles.own_protocol("tiny-v1", known) == protocol
    with pytest.raises(steps.SetupError, match="not in this checkout") as caught:
        bundles.own_protocol("other", known)
    assert caught.value.exit_code == 5
    assert "tiny-v1" in caught.value.fix


def test_labels_are_there_only_when_every_dataset_is(tmp_path: Path) -> None:
    protocol = tmp_path / "p.json"
    protocol.write_text('{"datasets": [{"name": "a"}, {"name": "b"}]}', encoding="ascii")
    (tmp_path / "a").mkdir()
    assert not bundles.has_data(protocol, tmp_path)
    (tmp_path / "b").mkdir()
    assert bundles.has_data(protocol, tmp_path)
    assert not bundles.has_data(Path("sha256:00"), tmp_path)


@pytest.mark.parametrize(
    ("arguments", "env", "code", "words"),
    [
        ([], {}, 2, "usage:"),
        (["nonsense"], {}, 2, "usage:"),
        (["run"], {}, 2, "MANIFEST is not set"),
        (["verify"], {"BUNDLE": ""}, 2, "BUNDLE is not set"),
        (["bench"], {"BENCH": "scoring nonsense"}, 2, "no benchmark nonsense"),
    ],
)
def test_targets_say_what_they_lack(
    arguments: list[str], env: dict[str, str], code: int, words: str
) -> None:
    bare = {"PATH": os.environ["PATH"], **env}
    command = [sys.executable, "-m", "tools.bootstrap", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert words in done.stderr


def test_make_without_python_says_what_to_do() -> None:
    done = subprocess.run(
        ["make", "-C", str(ROOT), "doctor", "PYTHON=/nowhere/python3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
