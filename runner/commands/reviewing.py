"""``reproduce`` and ``drift``: execute a sealed plan again, once for a review or on a schedule."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.bundle.read import open_bundle
from runner.commands.imaging import CACHE
from runner.commands.output import table, tell
from runner.commands.running import signing_key
from runner.commands.verifying import bundle_folder, expected_protocol, signatures_of, trust_of
from runner.compare import Verdict
from runner.drift.audit import DriftRequest, look
from runner.drift.text import difference_text
from runner.engine.api import Engine
from runner.engine.docker import DockerEngine
from runner.errors import (
    EXIT_CANCELLED,
    EXIT_DIFFERENT,
    EXIT_DRIFT,
    EXIT_NOT_COMPARABLE,
    EXIT_OK,
    UsageError,
)
from runner.imagebuild.build import build
from runner.imagelock import load_locks
from runner.obtain import Sources
from runner.progress import Mode, Reporter, make_reporter
from runner.reproduce import ReproduceRequest, Reproduction
from runner.reproduce import reproduce as reproduce_bundle
from runner.reproduction import difference_lines
from runner.run import Host
from runner.signals import CancelToken, cancel_on_signals

EXITS = {
    Verdict.IDENTICAL: EXIT_OK,
    Verdict.EQUIVALENT: EXIT_OK,
    Verdict.DIFFERENT: EXIT_DIFFERENT,
    Verdict.NOT_COMPARABLE: EXIT_NOT_COMPARABLE,
}


def reproduce(arguments: Namespace) -> int:
    """Execute again and compare; exit code 0 for identical and equivalent, 23 for different."""
    mode: Mode = "json" if arguments.json else arguments.progress
    reporter = make_reporter(mode, sys.stdout if arguments.json else sys.stderr)
    with ExitStack() as stack:
        stack.callback(reporter.close)
        request = request_of(arguments, stack, reporter)
        cancel = stack.enter_context(cancel_on_signals(CancelToken()))
        made = reproduce_bundle(
            request, host=Host(open_engine=DockerEngine), reporter=reporter, cancel=cancel
        )
    reporter.close()
    if arguments.json:
        last = {"event": "result", **result_document(made)}
        tell(json.dumps(last) + "\n")
    else:
        tell(verdict_text(made))
    if not made.result.summary.complete:
        return EXIT_CANCELLED
    return EXITS[made.verdict]


def drift(arguments: Namespace) -> int:
    """Look at a baseline once; exit code 25 on drift, 24 where there is nothing to compare."""
    if arguments.keep < 1:
        raise UsageError("usage.keep", f"--keep {arguments.keep}", fix="keep at least one bundle")
    mode: Mode = "json" if arguments.json else arguments.progress
    reporter = make_reporter(mode, sys.stdout if arguments.json else sys.stderr)
    with ExitStack() as stack:
        stack.callback(reporter.close)
        request = DriftRequest(
            baseline=request_of(arguments, stack, reporter),
            state=arguments.state,
            keep=arguments.keep,
        )
        cancel = stack.enter_context(cancel_on_signals(CancelToken()))
        made = look(request, host=Host(open_engine=DockerEngine), reporter=reporter, cancel=cancel)
    reporter.close()
    if arguments.json:
        tell(json.dumps({"event": "result", **made.record}) + "\n")
    else:
        tell(difference_text(made.record, made.reproduction.document))
    if not made.reproduction.result.summary.complete:
        return EXIT_CANCELLED
    return EXIT_DRIFT if made.record["drift"] else EXITS[made.verdict]


def request_of(arguments: Namespace, stack: ExitStack, reporter: Reporter) -> ReproduceRequest:
    """Read the options that ``reproduce`` and ``drift`` share, and those that only one has."""
    key = None if arguments.unsigned else signing_key(arguments.sign_key)
    trust = trust_of(arguments)
    folder = bundle_folder(arguments, stack)
    if arguments.protocol is not None:
        protocol_id, _ = expected_protocol(arguments.protocol)
    else:
        with open_bundle(
            folder, protocol_id=None, trust=trust, allow_unsigned=arguments.allow_unsigned
        ) as view:
            protocol_id = view.manifest.benchmark_digest
        reporter.note(f"no --protocol named: the bundle's own is taken, {protocol_id}")
    sign = not getattr(arguments, "no_countersign", True)
    return ReproduceRequest(
        bundle=folder,
        protocol_id=protocol_id,
        trust=trust,
        data_root=arguments.data_root,
        key=key,
        out=getattr(arguments, "out", None),
        countersign=signatures_of(arguments.bundle) if sign else None,
        allow_unsigned=arguments.allow_unsigned,
        sources=Sources(
            archives=arguments.images,
            rebuild=None if arguments.no_rebuild else _rebuild(reporter.note),
            locks=load_locks(),
            tell=reporter.note,
        ),
        fresh=getattr(arguments, "fresh", False),
        models_root=arguments.models_root,
    )


def _rebuild(tell: Callable[[str], None]) -> Callable[[Engine, str], object]:
    def rebuild(engine: Engine, name: str) -> object:
        tell(f"image {name}: building it from images/")
        return build([name], engine=engine, cache_dir=CACHE)

    return rebuild


def result_document(made: Reproduction) -> dict[str, Any]:
    """What ``--json`` ends with."""
    return {
        "verdict": made.verdict.value,
        "reproduction": made.document,
        "bundle": str(made.result.bundle.path),
        "countersignature": made.review and str(made.review),
        "independent": made.independent,
        "summary": asdict(made.result.summary),
    }


def verdict_text(made: Reproduction) -> str:
    """The verdicts, whatever differs side by side, and where things are."""
    document = made.document
    rows = [(one["method"], one["verdict"], one["reason"]) for one in document["methods"]]
    lines = [table(("method", "verdict", "why"), rows)]
    differences = list(difference_lines(document))
    if differences:
        lines.append("\n".join(differences) + "\n")
    lines.append("\n".join(_ends(made, document)) + "\n")
    return "\n".join(lines)


def _ends(made: Reproduction, document: Mapping[str, Any]) -> list[str]:
    sources: dict[str, list[str]] = {}
    for image in document["images"]:
        sources.setdefault(image["source"], []).append(image["name"])
    words = {
        "engine": "there already",
        "archive": "from an archive",
        "registry": "from the registry",
        "built": "built here",
    }
    lines = [f"verdict: {document['verdict']} ({document['reason']})"]
    lines += [f"note: {note}" for note in document["notes"]]
    lines += [f"images {words[name]}: {', '.join(found)}" for name, found in sources.items()]
    lines.append(f"original: sha256:{document['original']['manifest_sha256']}")
    lines.append(f"bundle: {made.result.bundle.path}")
    if made.review is not None:
        lines.append(f"countersigned: {_shown(made.review)}")
        if not made.independent:
            lines.append(
                "note: this countersignature is the submitter's own and does not count as "
                "reproduced; that takes another person's, with a key of theirs"
            )
    return lines


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
