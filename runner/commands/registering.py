"""``merge``, ``registry``, ``leaderboard``: what becomes of bundles once they are verified."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.bundle.archive import export_archive
from runner.bundle.durable import make_directory, put_file
from runner.bundle.read import open_bundle
from runner.commands.output import emit, table
from runner.commands.running import signing_key
from runner.commands.verifying import signatures_of, trust_of
from runner.errors import EXIT_OK, UsageError, Where
from runner.keys import default_public_path
from runner.merge import MergeRequest
from runner.merge import merge as merge_bundles
from runner.protocol.load import load_protocol
from runner.registry import AddRequest, AlreadyKept, Registry, compare_entries
from runner.registry_entry import CHECKED, Entry
from runner.report.words import pointed
from runner.schema_faults import suggest
from runner.trust import Trust, explicit
from runner.verify.bundle import locate


def merge(arguments: Namespace) -> int:
    """Merge verified bundles of one protocol into a new one, and sign it."""
    if (arguments.out / "bundle").exists():
        raise UsageError(
            "usage.occupied", f"{arguments.out} holds a bundle already", fix="choose another --out"
        )
    key = None if arguments.unsigned else signing_key(arguments.sign_key)
    protocol = load_protocol(arguments.protocol)
    arguments.bundle = arguments.bundles[0]  # what a trust file may not lie in
    bundle = merge_bundles(
        MergeRequest(
            bundles=[locate(path) for path in arguments.bundles],
            protocol=protocol,
            data_root=arguments.data_root,
            trust=trust_of(arguments),
            out=arguments.out,
            key=key,
            name=arguments.name,
        )
    )
    own = None if key is None else explicit([key.public])
    with open_bundle(
        bundle.path, protocol_id=protocol.protocol_id, trust=own, allow_unsigned=key is None
    ) as view:
        export_archive(view, arguments.out / "bundle.tar")
    document = {"bundle": str(bundle.path), "merged": [str(path) for path in arguments.bundles]}
    emit(arguments, document, f"merged {len(arguments.bundles)} bundles into {bundle.path}")
    return EXIT_OK


def registry_add(arguments: Namespace) -> int:
    """Verify a bundle with its labels and keep it."""
    request = AddRequest(
        bundle=locate(arguments.bundle),
        protocol=load_protocol(arguments.protocol),
        data_root=arguments.data_root,
        trust=trust_of(arguments),
        signatures=signatures_of(arguments.bundle),
    )
    try:
        entry, done = Registry(arguments.registry).add(request), "added"
    except AlreadyKept as kept:
        entry, done = kept.entry, "already there, as it was added:"
    text = f"{done} {entry.name}, bundle sha256:{entry.bundle_sha256}"
    emit(arguments, entry.as_dict(), f"{text}\n  under protocol {entry.protocol_id}")
    return EXIT_OK


def registry_list(arguments: Namespace) -> int:
    """List what is kept, by protocol."""
    entries = _entries(arguments)
    rows = [
        (
            entry.benchmark,
            entry.protocol_id[7:19],
            entry.bundle_sha256[:12],
            entry.name,
            entry.signer.name,
            entry.signer.standing.removeprefix("signature "),
            ", ".join(entry.methods),
        )
        for entry in entries
    ]
    head = ("benchmark", "protocol", "bundle", "run", "signed by", "signature", "methods")
    text = table(head, rows) or f"no bundle is kept in {arguments.registry}"
    emit(arguments, {"entries": [entry.as_dict() for entry in entries]}, text)
    return EXIT_OK


def registry_compare(arguments: Namespace) -> int:
    """Put the methods of several bundles of one protocol side by side."""
    registry = _registry(arguments)
    entries = [registry.find(prefix) for prefix in arguments.bundles]
    rows = compare_entries(entries, split=arguments.split)
    if arguments.metric is not None:
        rows = _of_metric(rows, arguments.metric)
    lines = [
        (
            row["task"],
            pointed(row["metric"]),
            "-" if row["rank"] is None else str(row["rank"]),
            row["method"] if row["executed"] else f"{row['method']} (imported)",
            "null" if row["mean_score"] is None else f"{row['mean_score']:.6f}",
            row["bundle"][:12],
        )
        for row in rows
    ]
    head = ("task", "metric", "rank", "method", f"score on {arguments.split}", "bundle")
    unsure = "".join(
        f"bundle {entry.bundle_sha256[:12]}, {entry.signer.name}: {entry.signer.standing}\n"
        for entry in entries
        if entry.signer.standing != CHECKED
    )
    emit(arguments, {"rows": rows}, table(head, lines) + _run_twice(rows) + unsure)
    return EXIT_OK


def _run_twice(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say, as the leaderboard does, that a method in several bundles takes several places."""
    bundles: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        bundles.setdefault((row["method"], row["method_id"]), set()).add(row["bundle"])
    twice = [f"{name} ({len(of)})" for (name, _), of in bundles.items() if len(of) > 1]
    if not twice:
        return ""
    return (
        f"ranks count every bundle: a method in several has a row and takes a place for each: "
        f"{', '.join(twice)}\n"
    )


def _of_metric(rows: Sequence[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    known = sorted({row["metric"] for row in rows})
    if metric not in known:
        raise UsageError(
            "registry.unknown-metric",
            f"none of these bundles has metric {metric!r}{suggest(metric, known)}",
            fix=f"use one of: {', '.join(known)}",
        )
    return [row for row in rows if row["metric"] == metric]


def leaderboard(arguments: Namespace) -> int:
    """Write the leaderboard of a registry: a page, and its rows as CSV and JSON."""
    from runner.report.leaderboard import as_csv, as_html, as_json, rows_of

    entries = _entries(arguments)
    rows = rows_of(entries)
    make_directory(arguments.out)
    written = []
    for name, text in (
        ("index.html", as_html(rows)),
        ("leaderboard.csv", as_csv(rows)),
        ("leaderboard.json", as_json(rows)),
    ):
        path = arguments.out / name
        put_file(path, text.encode("utf-8"), replace=True)
        written.append(str(path))
    text = f"{len(entries)} bundles, {len(rows)} rows: {', '.join(written)}"
    emit(arguments, {"bundles": len(entries), "rows": len(rows), "files": written}, text)
    return EXIT_OK


def _entries(arguments: Namespace) -> list[Entry]:
    """What the registry keeps, or keeps of one protocol; ``UsageError`` for one that it has not."""
    registry = _registry(arguments)
    found = registry.entries(arguments.protocol_id)
    if not found and arguments.protocol_id and (kept := registry.entries()):
        known = ", ".join(sorted({entry.protocol_id for entry in kept}))
        raise UsageError(
            "registry.unknown-protocol",
            f"no bundle of protocol {arguments.protocol_id!r} in {arguments.registry}",
            fix=f"use the first digits of one of: {known}",
        )
    return found


def _registry(arguments: Namespace) -> Registry:
    """The registry, read by the trust file, the key named or your own key; without any of them no
    signature is checked, and what is written says so."""
    folder: Path = arguments.registry
    if not folder.is_dir():
        beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
        near = suggest(folder.name, sorted(path.name for path in beside if path.is_dir()))
        raise UsageError(
            "registry.missing",
            f"there is no registry{near}",
            fix="name its folder: --registry DIR (make: REGISTRY=DIR); `sealbench registry add` "
            "makes one",
            where=Where(file=str(folder)),
        )
    arguments.bundle = folder  # what a trust file may not lie in
    arguments.allow_unsigned = False
    named = arguments.trust is not None or arguments.key is not None
    trust: Trust | None = None
    if named or default_public_path().exists():
        trust = trust_of(arguments)
    return Registry(folder, trust)
