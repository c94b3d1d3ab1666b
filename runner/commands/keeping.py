"""``keys``, ``trust``, ``doctor``, ``clean``: the upkeep around runs."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from runner import keys, trust
from runner.commands.output import emit, table
from runner.errors import EXIT_NOT_READY, EXIT_OK, EngineError

if TYPE_CHECKING:
    from runner.engine.clean import CleanReport


def keys_generate(arguments: Namespace) -> int:
    """Make a key; with ``--if-missing`` keep the one that is there."""
    folder = keys.keys_directory()
    if arguments.if_missing and (folder / f"{arguments.name}.pem").exists():
        return keys_list(arguments)
    passphrase = None
    if arguments.passphrase_file is not None:
        passphrase = keys.read_secret_file(arguments.passphrase_file).splitlines()[0]
    files = keys.generate(name=arguments.name, passphrase=passphrase, force=arguments.force)
    document = {
        "keyid": files.public.keyid,
        "private": str(files.private_pem),
        "public": str(files.public_pem),
        "ssh_public": str(files.ssh_public),
        "ssh_private": files.ssh_private and str(files.ssh_private),
    }
    text = (
        f"key id  {files.public.keyid}\n"
        f"private {files.private_pem} (keep it to yourself)\n"
        f"public  {files.public_pem} (give this one to whoever verifies)\n"
    )
    emit(arguments, document, text)
    return 0


def keys_list(arguments: Namespace) -> int:
    """List the public halves in the key folder."""
    found = [
        (path.name.removesuffix(".pub.pem"), keys.load_public(path).keyid, str(path))
        for path in sorted(keys.keys_directory().glob("*.pub.pem"))
    ]
    document = {"keys": [{"name": n, "keyid": k, "public": p} for n, k, p in found]}
    text = table(("name", "key id", "public key"), found) or (
        "no keys; make one: sealbench keys generate\n"
    )
    emit(arguments, document, text)
    return 0


def trust_add(arguments: Namespace) -> int:
    """Add a key to a trust file, which is made when it does not exist."""
    key = trust.TrustedKey(
        public=keys.load_public(arguments.key),
        principal=arguments.principal,
        roles=tuple(trust.KeyRole(role) for role in arguments.role),
        benchmarks=tuple(arguments.benchmark or trust.ALL_BENCHMARKS),
        not_before=arguments.not_before,
        not_after=arguments.not_after,
    )
    return _show_trust(arguments, trust.add(arguments.file, key))


def trust_list(arguments: Namespace) -> int:
    """Show a trust file."""
    return _show_trust(arguments, trust.load(arguments.file))


def trust_revoke(arguments: Namespace) -> int:
    """Revoke a key of a trust file."""
    changed = trust.revoke(arguments.file, arguments.keyid, compromised_at=arguments.compromised_at)
    return _show_trust(arguments, changed)


def _show_trust(arguments: Namespace, held: trust.Trust) -> int:
    rows = [
        (
            key.principal,
            key.public.keyid[:16],
            ", ".join(key.roles),
            ", ".join(key.benchmarks),
            f"{key.not_before or 'any'} to {key.not_after or 'any'}",
            key.status.value,
        )
        for key in held.keys
    ]
    head = ("principal", "key id", "roles", "benchmarks", "valid", "status")
    document = {"keys": [{"keyid": key.public.keyid, **key.as_dict()} for key in held.keys]}
    emit(arguments, document, table(head, rows) or "no key is trusted\n")
    return 0


def doctor(arguments: Namespace) -> int:
    """Tell what is missing; exit code 22 when something that a run needs is."""
    from runner.doctor import Machine, as_document, as_text, diagnose, is_ready

    findings = diagnose(Machine(data_root=arguments.data_root))
    emit(arguments, as_document(findings), as_text(findings))
    return EXIT_OK if is_ready(findings) else EXIT_NOT_READY


def clean(arguments: Namespace) -> int:
    """Remove containers and control groups of dead runs; list unfinished result folders.

    Nothing records where results were put: only ``runs/`` and the folders named are looked through.
    """
    from runner.engine.clean import sweep
    from runner.engine.docker import DockerEngine
    from runner.workspace import RUNS, abandoned

    engine = DockerEngine()
    try:
        runs = (
            [Path(entry) for entry in os.scandir(RUNS) if entry.is_dir()] if RUNS.is_dir() else []
        )
        folders = list(dict.fromkeys([*runs, *arguments.folders]))
        report = sweep(engine, dry_run=arguments.dry_run, folders=folders)
    finally:
        engine.close()
    work, half_removed = abandoned(folders)
    if not arguments.dry_run:
        _purge(half_removed)
    unfinished = sorted({*report.partial_folders, *map(str, work)})
    document = asdict(report) | {
        "partial_folders": unfinished,
        "finished_folders": [str(folder) for folder in half_removed],
    }
    lines = _swept(report, dry_run=arguments.dry_run)
    lines += [
        f"kept the unfinished {folder}: run its manifest again to resume, or delete it"
        for folder in unfinished
    ]
    verb = "would remove" if arguments.dry_run else "removed"
    lines += [f"{verb} {folder}, what is left of a finished run" for folder in half_removed]
    lines = lines or ["nothing to clean"]
    looked = ", ".join([f"{RUNS}/", *map(str, arguments.folders)])
    lines.append(f"folders: looked in {looked}; name others that you gave to --out to look there")
    emit(arguments, document, "\n".join(lines))
    if not arguments.dry_run and not report.clean:
        raise EngineError(
            "engine.not-clean",
            "something that runs left could not be removed",
            fix="see the lines above; run `sealbench clean` again with the engine's owner's rights",
        )
    return EXIT_OK


def _swept(report: CleanReport, *, dry_run: bool) -> list[str]:
    """What became of each container and control group that a dead run left."""
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} container {item.name} ({item.status})"
        if dry_run or item.removed
        else f"could not remove container {item.name}: {item.problem}"
        for item in report.containers
        if item.stale
    ]
    return lines + [
        f"{verb if gone or dry_run else 'could not remove'} control group {name}"
        for name, gone in report.groups
    ]


def _purge(folders: Iterable[Path]) -> None:
    from runner.purge import purge

    for folder in folders:
        purge(folder)
