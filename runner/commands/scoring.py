"""``score``: results that were made elsewhere, under the protocol, sealed as what they are."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from runner.commands.running import run_and_tell
from runner.imports import open_import
from runner.manifest import RunManifest, parse_run_manifest
from runner.protocol.load import load_protocol
from runner.protocol.splits import ALL

_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


def score(arguments: Namespace) -> int:
    """Score a file; the exit codes are those of ``run``."""
    return run_and_tell(arguments, manifest_of(arguments))


def manifest_of(arguments: Namespace) -> RunManifest:
    """Return the manifest that a person would have written for this; its text is sealed.

    It names files without their folders: a bundle tells nothing of the machine.
    """
    file, protocol = Path(arguments.file), arguments.protocol
    loaded = load_protocol(protocol)
    name = arguments.name or display_name(file.name)
    fields = {
        "schema": "sealbench/run/v1",
        "name": name,
        "protocol": protocol.name,
        "protocol_id": loaded.protocol_id,
        "splits": arguments.split or [ALL],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    lines += ["methods:", f"  - name: {json.dumps(name)}"]
    lines += [f"    precomputed: {json.dumps(file.name, ensure_ascii=False)}"]
    manifest = parse_run_manifest(("\n".join(lines) + "\n").encode(), Path("score.yaml"))
    methods = tuple(replace(method, precomputed=file) for method in manifest.methods)
    for dataset in loaded.datasets:  # told by the path given: nobody wrote the manifest above
        open_import(methods[0].imported_path(dataset.name)).close()
    return replace(manifest, protocol=protocol, methods=methods)


def display_name(file: str) -> str:
    """Return a file's name as the name of a method: ``My Run.trec`` is ``my-run``."""
    stem = _NOT_IN_NAMES.sub("-", file.partition(".")[0].lower()).strip("-._")
    return stem[:40] or "imported"
