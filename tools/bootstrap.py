"""First use in one command: what `make TARGET` does, from a bare machine on.

Settings come from the environment (make exports its variables): MANIFEST, DATA_ROOT, OUT, KEY,
BUNDLE, EMBEDDINGS, PROTOCOL, TRUST, SUBMITTER, ARCHIVES, TESTS, BENCH, IMAGES, BASE,
ENGINE_INSTALL.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import container
from tools.bundles import claimed_benchmark, has_data, own_protocol, own_protocols
from tools.child import run_child
from tools.images import needed, recipes
from tools.setup import ROOT, Setup
from tools.steps import SetupError, Steps
from tools.system import ensure_tools

EXIT_USAGE = 2
EXIT_IMAGE = 6
BENCHMARKS = ROOT / "manifests" / "benchmarks"
OWN_DATA = ROOT / "manifests" / "data"
SHARED_DATA = ROOT.parent / "shared" / "data"
# What the engine tests and the tests of independent verifiers call; Debian's names beside them.
TEST_TOOLS = {
    "busybox": "busybox-static",
    "openssl": "openssl",
    "jq": "jq",
    "ssh-keygen": "openssh-client",
    "mmdebstrap": "mmdebstrap",
}


def run(setup: Setup) -> int:
    """Set up, then run a manifest: `sealbench run` seals, verifies and sums up by itself."""
    manifest = setup.required("MANIFEST", "make run MANIFEST=manifests/quickstart.yaml")
    setup.prepare_environment()
    names = recipes(ROOT)
    try:
        # A mistake shows now, not after minutes of set-up; and only what is used is built.
        names = needed(setup.ask("plan", manifest), names)
    except SetupError as error:
        # An image without a digest for this platform gets one when it is built.
        if error.exit_code != EXIT_IMAGE:
            raise
    setup.prepare_engine(names)
    setup.prepare_key()
    return setup.call("run", manifest, *setup.options(data_root="DATA_ROOT", out="OUT", key="KEY"))


def verify(setup: Setup) -> int:
    """Verify a bundle; what is not named is chosen here, and said."""
    bundle = Path(setup.required("BUNDLE", "make verify BUNDLE=runs/quickstart-..."))
    setup.prepare_environment()
    protocol = setup.setting("PROTOCOL")
    if protocol is None:
        chosen = own_protocol(claimed_benchmark(bundle), own_protocols(BENCHMARKS))
        protocol = str(chosen)
        setup.steps.say(f"-- no PROTOCOL named: the bundle has to follow {_short(chosen)}")
    trust = setup.options(trust="TRUST")
    if not trust:
        setup.steps.say("-- no TRUST named: only your own key counts")
    labels = _labels(setup, OWN_DATA if has_data(Path(protocol), OWN_DATA) else None)
    embeddings = setup.options(embeddings="EMBEDDINGS")
    if embeddings:
        setup.prepare_engine(())
    return setup.call("verify", str(bundle), "--protocol", protocol, *trust, *labels, *embeddings)


def reproduce(setup: Setup) -> int:
    """Execute a bundle's plan again and compare; images that are missing are brought or built."""
    bundle = Path(setup.required("BUNDLE", "make reproduce BUNDLE=bundle.tar SUBMITTER=pub.pem"))
    setup.prepare_environment()
    protocol = setup.setting("PROTOCOL")
    if protocol is None:
        chosen = own_protocol(claimed_benchmark(bundle), own_protocols(BENCHMARKS))
        protocol = str(chosen)
        setup.steps.say(f"-- no PROTOCOL named: the bundle has to follow {_short(chosen)}")
    data_root = setup.setting("DATA_ROOT")
    if data_root is None:
        if not has_data(Path(protocol), OWN_DATA):
            raise SetupError(
                "DATA_ROOT is not set",
                fix="name the folder with your copy of the data: DATA_ROOT=dir",
                exit_code=EXIT_USAGE,
            )
        data_root = str(OWN_DATA)
    trust = setup.options(trust="TRUST", key="SUBMITTER")
    if not trust:
        setup.steps.say("-- neither TRUST nor SUBMITTER named: only your own key counts")
    setup.prepare_engine(())  # images come from archives, a registry, or are built when they lack
    if setup.site.system.can_install:
        with setup.steps.step("Image builder") as step:
            ensure_tools({"mmdebstrap": "mmdebstrap"}, setup.site, step)
    setup.prepare_key()
    options = setup.options(images="ARCHIVES", out="OUT", sign_key="KEY")
    expected = ("--protocol", protocol, "--data-root", data_root)
    return setup.call("reproduce", str(bundle), *expected, *trust, *options)


def _labels(setup: Setup, known: object) -> list[str]:
    """Return the option that names the labels, so that scores are recomputed; empty without."""
    data_root = setup.setting("DATA_ROOT") or known
    if data_root is not None:
        return ["--data-root", str(data_root)]
    setup.steps.say("-- no DATA_ROOT named: without the labels no score can be recomputed")
    return []


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test(setup: Setup) -> int:
    """Set up for development, then run all tests, on a real engine."""
    setup.prepare_environment(dev=True)
    with setup.steps.step("Test tools") as step:
        ensure_tools(TEST_TOOLS, setup.site, step)
        step.done("present")
    setup.prepare_engine(recipes(ROOT))
    setup.child_env["SEALBENCH_REQUIRE_ENGINE"] = "1"
    _offer_data(setup)
    selection = (setup.setting("TESTS") or "tests").split()
    return setup.python_module("pytest", *selection)


def _offer_data(setup: Setup) -> None:
    """Name the data root that is given, or that lies beside this checkout, to tests and benches."""
    data_root = setup.setting("DATA_ROOT") or (SHARED_DATA if SHARED_DATA.is_dir() else None)
    if data_root is not None:
        setup.child_env["SEALBENCH_DATA_ROOT"] = str(Path(data_root).resolve())


def lint(setup: Setup) -> int:
    """Style, types, schemas, and every manifest that we ship."""
    setup.prepare_environment(dev=True)
    python, sealbench = (setup.python, "-m"), setup.sealbench
    checks: list[tuple[str, ...]] = [
        (*python, "ruff", "check", "."),
        (*python, "ruff", "format", "--check", "."),
        (*python, "mypy"),
        (*python, "pytest", "-q", "tests/unit/test_schemas.py"),
    ]
    manifests = sorted((ROOT / "manifests").glob("*.yaml"))
    manifests += sorted((ROOT / "examples").glob("*/run.yaml"))
    checks += [(sealbench, "check", _short(path)) for path in manifests]
    failed = []
    for command in checks:
        shown = " ".join([Path(command[0]).name, *command[1:]])
        setup.steps.say(f".. {shown}")
        if run_child(command, setup.child_env) != 0:
            failed.append(shown)
    for shown in failed:
        setup.steps.say(f"-- failed: {shown}")
    return 1 if failed else 0


def build_images(setup: Setup) -> int:
    """Build the method images, or those that are named, and load them into the engine."""
    setup.prepare_environment()
    setup.prepare_engine((setup.setting("IMAGES") or " ".join(recipes(ROOT))).split())
    return setup.call("images", "list")


def build_container(setup: Setup) -> int:
    """Build the runner's own image, on our base or on one that is named by digest."""
    setup.prepare_environment()
    base = setup.setting("BASE")
    setup.prepare_engine(() if base else (container.BASE_IMAGE,))
    with setup.steps.step("Wheels of the runner") as step:
        container.clean_wheels(ROOT)
        code = run_child(container.download_command(setup.python, ROOT), setup.child_env)
        if code != 0:
            raise SetupError("the wheels could not be fetched", fix="see pip's message above")
        step.done("fetched, each under a hash of the lock")
    command = container.build_command(base or container.own_base(ROOT), ROOT, tag=container.TAG)
    return run_child(command, setup.child_env)


def leaderboard(setup: Setup) -> int:
    """Write the leaderboard of a registry: a page, CSV and JSON."""
    setup.prepare_environment()
    return setup.call("leaderboard", *setup.options(registry="REGISTRY", out="OUT", trust="TRUST"))


def doctor(setup: Setup) -> int:
    """Tell what is missing; installs nothing but the environment that the question needs."""
    setup.prepare_environment()
    return setup.call("doctor", *setup.options(data_root="DATA_ROOT"))


def clean(setup: Setup) -> int:
    """Remove containers and folders that runs left."""
    setup.prepare_environment()
    out = setup.setting("OUT")
    return setup.call("clean", *([out] if out else []))


def bench(setup: Setup) -> int:
    """Measure our speed against peers, both sides in one run; exit code 1 when a goal is missed."""
    known = [path.stem for path in sorted((ROOT / "bench").glob("*.py")) if _runs(path)]
    chosen = (setup.setting("BENCH") or " ".join(known)).split()
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise SetupError(
            f"no benchmark {', '.join(unknown)}",
            fix=f"BENCH= takes some of: {' '.join(known)}",
            exit_code=EXIT_USAGE,
        )
    setup.prepare_environment(dev=True)
    setup.prepare_engine(recipes(ROOT))
    _offer_data(setup)
    missed = []
    for name in chosen:
        setup.steps.say(f"\n== {name}")
        if setup.python_module(f"bench.{name}") != 0:
            missed.append(name)
    if missed:
        setup.steps.say(f"\n-- a goal was missed in: {', '.join(missed)}")
    return 1 if missed else 0


def _runs(path: Path) -> bool:
    return "__main__" in path.read_text(encoding="utf-8")


TARGETS: dict[str, Callable[[Setup], int]] = {
    "run": run,
    "verify": verify,
    "reproduce": reproduce,
    "test": test,
    "lint": lint,
    "images": build_images,
    "leaderboard": leaderboard,
    "container": build_container,
    "doctor": doctor,
    "clean": clean,
    "bench": bench,
}


def main(arguments: Sequence[str]) -> int:
    """Run one target and return its exit code."""
    if len(arguments) != 1 or arguments[0] not in TARGETS:
        sys.stderr.write(f"usage: python3 -m tools.bootstrap {{{'|'.join(TARGETS)}}}\n")
        return EXIT_USAGE
    try:
        return TARGETS[arguments[0]](Setup(os.environ, Steps()))
    except SetupError as error:
        sys.stdout.flush()
        sys.stderr.write(f"sealbench: {error.message}\n  fix: {error.fix}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("sealbench: cancelled\n")
        return 21


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
