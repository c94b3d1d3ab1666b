"""Which commands there are and what they take; ``cli`` runs the one that was asked for.

Nothing is imported here that a command needs: `--help` must answer at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from runner import __version__
from runner.parsing import Parser

Add = Callable[..., argparse.ArgumentParser]
EXIT_CODES = """exit codes:
  0 done          3 manifest   5 protocol  7 engine  9 storage  11 bundle refused
  2 command line  4 data       6 image     8 limit  10 key     70 a fault of our own
  20 sealed, but an outcome was not the expected one    21 cancelled    22 doctor found a lack
  23 reproduced as different    24 not comparable    25 drift"""


def _path(text: str) -> Path:
    # Path("") is the current folder: `--out "$UNSET"` would write there.
    if not text:
        raise argparse.ArgumentTypeError("an empty path")
    return Path(text)


def build_parser() -> argparse.ArgumentParser:
    """Return the whole parser; each leaf sets ``handler`` to ``module:function``."""
    parser = Parser(
        prog="sealbench",
        description="Run benchmark methods in pinned containers and seal what happened.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sealbench {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def leaf(group: object, name: str, handler: str, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = group.add_parser(  # type: ignore[attr-defined]  # private type
            name, help=text, description=text, epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        made.add_argument("--json", action="store_true", help="print JSON for machines")
        made.set_defaults(handler=handler)
        return made

    _add_run_commands(commands, leaf)
    _add_score_commands(commands, leaf)
    _add_data_commands(commands, leaf)
    _add_benchmark_commands(commands, leaf)
    _add_bundle_commands(commands, leaf)
    _add_registry_commands(commands, leaf)
    _add_review_commands(commands, leaf)
    _add_upkeep_commands(commands, leaf)
    return parser


def _add_run_commands(commands: object, leaf: Add) -> None:
    for name, text in (
        ("check", "lint a run manifest; needs no engine"),
        ("plan", "show what a run manifest resolves to, with all ids; runs nothing"),
    ):
        command = leaf(commands, name, f"planning:{name}", text)
        command.add_argument("manifest", type=_path)
        command.add_argument("--repeats", type=int, help="override the manifest's repeats")
        command.add_argument("--jobs", type=int, help="override the manifest's jobs")
        _add_split(command)
    run = leaf(commands, "run", "running:run", "run a manifest and seal the bundle")
    run.add_argument("manifest", type=_path)
    run.add_argument("--data-root", type=_path, help="folder that holds <dataset name>/ folders")
    run.add_argument("--out", type=_path, help="result folder (default runs/<name>-<run id>)")
    run.add_argument("--key", type=_path, help="private key file (default: your own)")
    run.add_argument("--unsigned", action="store_true", help="seal without a signature")
    run.add_argument("--repeats", type=int, help="override the manifest's repeats")
    _add_split(run)
    run.add_argument(
        "--config-freeze", type=_path, help="what was settled before the held-out split was scored"
    )
    run.add_argument("--models-root", type=_path, help="folder of <model name>/ folders")
    run.add_argument("--cache-dir", type=_path, help="keep methods' caches here for later runs")
    run.add_argument("--jobs", type=int, help="units to run side by side (timings then distort)")
    run.add_argument("--retry-failed", action="store_true", help="on resume, rerun failures too")
    run.add_argument("--fresh", action="store_true", help="do not resume an interrupted run")
    run.add_argument("--progress", choices=("auto", "plain", "quiet"), default="auto")


def _add_split(command: argparse.ArgumentParser) -> None:
    text = "score this split instead of the manifest's; may be repeated"
    command.add_argument("--split", action="append", metavar="NAME", help=text)


def _add_score_commands(commands: object, leaf: Add) -> None:
    score = leaf(commands, "score", "scoring:score", "score results that were made elsewhere")
    score.add_argument(
        "file", type=_path,
        help="TREC run, BEIR or MTEB results, rows...; {dataset} for the dataset's name",
    )  # fmt: skip
    score.add_argument("--protocol", type=_path, required=True, help="protocol file")
    score.add_argument("--data-root", type=_path, help="folder that holds <dataset name>/ folders")
    score.add_argument("--name", help="display name (default: the file's)")
    _add_split(score)
    score.add_argument("--config-freeze", type=_path, help="see `sealbench config freeze`")
    score.add_argument("--out", type=_path, help="result folder (default runs/<name>-<run id>)")
    score.add_argument("--key", type=_path, help="private key file (default: your own)")
    score.add_argument("--unsigned", action="store_true", help="seal without a signature")
    score.add_argument("--progress", choices=("auto", "plain", "quiet"), default="quiet")
    score.set_defaults(repeats=None, jobs=None, retry_failed=False, fresh=False)
    config = _group(commands, "config", "settle a configuration before the held-out split is seen")
    freeze = leaf(config, "freeze", "configuring:freeze", "sign what was chosen on calibration")
    freeze.add_argument("source", type=_path, help="bundle of the calibration run, or a manifest")
    freeze.add_argument("--out", type=_path, help="file (default: <name>.config-freeze.json)")
    freeze.add_argument("--key", type=_path, help="private key file (default: your own)")
    show = leaf(config, "show", "configuring:show", "show what a freeze record settles")
    show.add_argument("file", type=_path)
    show.add_argument("--key", type=_path, help="public key (PEM) to trust (default: your own)")


def _add_data_commands(commands: object, leaf: Add) -> None:
    data = _group(commands, "data", "bring collections into the layout that can be frozen")
    text = "convert a collection that the ir_datasets package knows"
    irds = leaf(data, "ir-datasets", "converting:ir_datasets", text)
    irds.add_argument("ident", metavar="ID", help="such as beir/scifact/test")
    irds.add_argument("--out", type=_path, required=True, help="data root: it becomes DIR/<name>/")
    irds.add_argument("--name", help="dataset name (default: from the id)")
    for name, known_as, what in (
        ("irplag", "IR-Plag", "the unpacked archive"),
        ("reviewer-gold", "Reviewer-Gold", "a checkout of its repository"),
    ):
        command = f"converting:{name.replace('-', '_')}"
        laid = leaf(data, name, command, f"lay out {known_as} as the benchmark was frozen from it")
        laid.add_argument("published", type=_path, metavar="FOLDER", help=what)
        laid.add_argument("--out", type=_path, required=True, help="data root")


def _add_benchmark_commands(commands: object, leaf: Add) -> None:
    freeze = leaf(commands, "freeze", "freezing:freeze", "freeze a benchmark into a protocol")
    freeze.add_argument("manifest", type=_path)
    freeze.add_argument("--data-root", type=_path, required=True)
    freeze.add_argument("--out", type=_path, help="where to write (default: beside the manifest)")
    freeze.add_argument("--force", action="store_true", help="replace a different protocol")
    bind = leaf(commands, "bind", "freezing:bind", "attach a data root to a portable protocol")
    bind.add_argument("protocol", type=_path)
    bind.add_argument("--data-root", type=_path, required=True)
    bind.add_argument(
        "--place", action="append", metavar="NAME=FOLDER", help="where a dataset lies, if elsewhere"
    )
    bind.add_argument("--out", type=_path, help="file (default: <benchmark>.local.json)")
    bind.add_argument("--force", action="store_true", help="replace a different protocol")
    models = _group(commands, "models", "model files that methods are given")
    digest = leaf(models, "digest", "modelling:digest", "print the digest of a folder of files")
    digest.add_argument("folder", type=_path)
    images = _group(commands, "images", "build, lock and list method images")
    build = leaf(images, "build", "imaging:build", "build images from pinned inputs and load them")
    build.add_argument("names", nargs="*", help="default: all")

    lock = leaf(images, "lock", "imaging:lock", "record the built digests in images.lock.json")
    lock.add_argument("names", nargs="*", help="default: all")
    lock.add_argument("--resolve", action="store_true", help="renew wheels and packages first")
    leaf(images, "list", "imaging:list_", "list images: locked, built, present")
    _add_transport_commands(images, leaf)


def _add_transport_commands(images: object, leaf: Add) -> None:
    which = "a name of the lock, sha256:<image id>, or repository@sha256:<manifest digest>"
    export = leaf(images, "export", "transporting:export", "write images as OCI archives")
    export.add_argument("names", nargs="*", help=which)
    export.add_argument("--out", type=_path, default=Path(), help="folder for the archives")
    export.add_argument("--bundle", type=_path, help="export the images of this bundle's plan")
    _add_trust_options(export)
    import_ = leaf(images, "import", "transporting:import_", "load image archives, digests checked")
    import_.add_argument("files", nargs="+", type=_path)
    import_.add_argument("--expect", action="append", help="only the image with this digest")
    push = leaf(images, "push", "transporting:push", "push an image under its manifest digest")
    push.add_argument("name", help=which)
    push.add_argument("repository", help="host[:port]/name, without a tag")
    push.add_argument("--credentials", type=_path, help="private file with user:password")
    pull = leaf(images, "pull", "transporting:pull", "pull an image by its manifest digest")
    pull.add_argument("reference", help="repository@sha256:<manifest digest>")
    pull.add_argument("--expect", help="the image id that it must have")


def _add_bundle_commands(commands: object, leaf: Add) -> None:
    verify = leaf(commands, "verify", "verifying:verify", "verify a bundle; needs no engine")
    verify.add_argument("bundle", type=_path, help="bundle folder, its parent, or bundle.tar")
    verify.add_argument("--protocol", required=True, help="expected protocol: its file or its id")
    _add_trust_options(verify)
    verify.add_argument("--data-root", type=_path, help="recompute every score with these labels")
    verify.add_argument(
        "--require", choices=("intact", "recomputed", "reproduced"), default="intact"
    )
    verify.add_argument(
        "--reviewers", type=int, default=1, help="people who must have reproduced it (default 1)"
    )
    verify.add_argument("--reference", action="store_true", help="slow reference validator only")
    verify.add_argument(
        "--embeddings", type=int, metavar="N",
        help="compute the embedding scores of N queries again; this needs an engine",
    )  # fmt: skip
    verify.add_argument("--models-root", type=_path, help="for --embeddings: <model name>/ folders")
    report = leaf(
        commands, "report", "reporting:report", "write a bundle's results as one HTML page"
    )
    report.add_argument("bundle", type=_path, help="bundle folder, its parent, or bundle.tar")
    report.add_argument("--out", type=_path, required=True, help="the page, such as report.html")
    report.add_argument(
        "--baseline", help="method to set the others against (default: the run's, or the best)"
    )
    report.add_argument("--protocol", help="expected protocol: file or id (default: the bundle's)")
    report.add_argument(
        "--data-root", type=_path, help="folder of <dataset name>/: recompute the scores first"
    )
    _add_trust_options(report)
    _add_assign(
        leaf(commands, "assign", "assigning:assign", "assign reviewers by a bundle's scores")
    )
    bundle = _group(commands, "bundle", "pack and unpack bundles")
    export = leaf(bundle, "export", "verifying:export", "write the canonical tar of a bundle")
    export.add_argument("bundle", type=_path)
    export.add_argument("tar", type=_path, help="ends in .gz: compressed")
    _add_trust_options(export)
    import_ = leaf(bundle, "import", "verifying:import_", "unpack a bundle's tar, safely")
    import_.add_argument("tar", type=_path)
    import_.add_argument("folder", type=_path)
    _add_trust_options(import_)


def _add_assign(command: argparse.ArgumentParser) -> None:
    command.add_argument("bundle", type=_path, help="bundle folder, its parent, or bundle.tar")
    command.add_argument("--method", required=True, help="whose scores: a method of the bundle")
    command.add_argument("--dataset", help="one dataset (default: the mean over all)")
    command.add_argument("--per-paper", type=int, default=3, help="reviewers of each paper")
    command.add_argument("--max-load", type=int, required=True, help="papers of each reviewer")
    command.add_argument("--capacities", type=_path, help="CSV reviewer_id,papers: other loads")
    command.add_argument("--out", type=_path, required=True, help="folder of both assignments")
    command.add_argument("--force", action="store_true", help="write into an --out that has files")
    command.add_argument(
        "--names", type=_path, help="CSV, for you alone: whom ids stand for; needs --data-root"
    )
    command.add_argument("--protocol", help="expected protocol: file or id (default: the bundle's)")
    command.add_argument(
        "--data-root", type=_path, help="folder of <dataset name>/: recompute the scores first"
    )
    _add_trust_options(command)


def _add_review_commands(commands: object, leaf: Add) -> None:
    text = "execute a bundle's plan again in identical containers, compare, countersign"
    reproduce = leaf(commands, "reproduce", "reviewing:reproduce", text)
    _add_again_options(reproduce)
    reproduce.add_argument("bundle", type=_path, help="bundle folder, its parent, or bundle.tar")
    reproduce.add_argument(
        "--out", type=_path, help="result folder (default runs/<name>-<id>-again)"
    )
    reproduce.add_argument("--no-countersign", action="store_true", help="sign no review")
    reproduce.add_argument("--fresh", action="store_true", help="do not resume an interrupted one")

    drift = leaf(
        commands, "drift", "reviewing:drift", "execute a baseline again and watch for drift"
    )
    _add_again_options(drift)
    drift.add_argument("--baseline", dest="bundle", type=_path, required=True, help="sealed bundle")
    drift.add_argument("--state", type=_path, required=True, help="folder of the history")
    drift.add_argument("--keep", type=int, default=10, help="newest bundles to keep (default 10)")


def _add_again_options(command: argparse.ArgumentParser) -> None:
    """What executing a bundle's plan again needs, whoever asks for it."""
    command.add_argument("--data-root", type=_path, required=True, help="your copy of the data")
    command.add_argument("--protocol", help="expected protocol: file or id (default: the bundle's)")
    _add_trust_options(command)
    command.add_argument("--images", type=_path, help="image archive, or a folder of *.tar")
    command.add_argument("--models-root", type=_path, help="folder of <model name>/ folders")
    command.add_argument("--no-rebuild", action="store_true", help="build no image from images/")
    command.add_argument(
        "--sign-key", type=_path, help="private key to seal with (default: your own)"
    )
    command.add_argument("--unsigned", action="store_true", help="seal without a signature")
    command.add_argument("--progress", choices=("auto", "plain", "quiet"), default="auto")


def _add_registry_commands(commands: object, leaf: Add) -> None:
    merge = leaf(commands, "merge", "registering:merge", "merge partial bundles of one protocol")
    merge.add_argument("bundles", type=_path, nargs="+", help="bundle folders or their parents")
    merge.add_argument("--protocol", type=_path, required=True, help="the protocol's file")
    merge.add_argument("--data-root", type=_path, required=True, help="labels to recompute with")
    merge.add_argument("--out", type=_path, required=True, help="new folder for the merged bundle")
    merge.add_argument("--name", help="name of the merged run (default: the first one's)")
    merge.add_argument("--sign-key", type=_path, help="private key file (default: your own)")
    merge.add_argument("--unsigned", action="store_true", help="seal without a signature")
    _add_trust_options(merge, unsigned=False)
    registry = _group(commands, "registry", "keep verified bundles and compare them")
    add = leaf(registry, "add", "registering:registry_add", "verify a bundle and keep it")
    add.add_argument("bundle", type=_path)
    add.add_argument("--registry", type=_path, default=Path("registry"))
    add.add_argument("--protocol", type=_path, required=True, help="the protocol's file")
    add.add_argument("--data-root", type=_path, required=True, help="labels to recompute with")
    _add_trust_options(add, unsigned=False)
    listing = leaf(registry, "list", "registering:registry_list", "list what is kept")
    compare = leaf(
        registry, "compare", "registering:registry_compare", "rank methods of several bundles"
    )
    compare.add_argument("bundles", nargs="+", help="first digits of their digests")
    compare.add_argument("--split", default="all")
    compare.add_argument("--metric", help="only this metric")
    board = leaf(commands, "leaderboard", "registering:leaderboard", "write a registry's page")
    board.add_argument("--out", type=_path, default=Path("leaderboard"))
    for command in (listing, board):
        command.add_argument("--protocol-id", help="only this protocol (first digits will do)")
    for command in (listing, compare, board):
        command.add_argument("--registry", type=_path, default=Path("registry"))
        _add_trust_options(command, unsigned=False)


def _add_trust_options(command: argparse.ArgumentParser, *, unsigned: bool = True) -> None:
    """Whose signatures count; ``unsigned``: and whether there may be none at all."""
    command.add_argument("--trust", type=_path, help="trust file: whose signatures count")
    command.add_argument("--key", type=_path, help="public key (PEM) to trust (default: your own)")
    if unsigned:
        command.add_argument("--allow-unsigned", action="store_true")
    else:
        command.set_defaults(allow_unsigned=False)


def _add_upkeep_commands(commands: object, leaf: Add) -> None:
    keys = _group(commands, "keys", "make and list signing keys")
    generate = leaf(keys, "generate", "keeping:keys_generate", "make an Ed25519 signing key")
    generate.add_argument("--name", default="default")
    generate.add_argument("--force", action="store_true", help="replace the key of that name")
    generate.add_argument("--if-missing", action="store_true", help="keep the key that is there")
    generate.add_argument(
        "--passphrase-file", type=_path, help="encrypt with this file's first line"
    )
    leaf(keys, "list", "keeping:keys_list", "list keys: name, key id, public key")
    trust = _group(commands, "trust", "keep the file that says whose signatures count")
    add = leaf(trust, "add", "keeping:trust_add", "trust a public key")
    add.add_argument("file", type=_path)
    add.add_argument("--key", type=_path, required=True, help="public key (PEM)")
    add.add_argument("--principal", required=True, help="who holds the key, for people")
    add.add_argument(
        "--role", action="append", choices=("runner", "reviewer", "leaderboard"), required=True
    )
    add.add_argument("--benchmark", action="append", help="only these benchmarks (default: all)")
    add.add_argument("--not-before", help="RFC 3339 UTC")
    add.add_argument("--not-after", help="RFC 3339 UTC")
    listing = leaf(trust, "list", "keeping:trust_list", "show a trust file")
    listing.add_argument("file", type=_path)
    revoke = leaf(trust, "revoke", "keeping:trust_revoke", "stop trusting a key")
    revoke.add_argument("file", type=_path)
    revoke.add_argument("keyid")
    revoke.add_argument("--compromised-at", help="RFC 3339 UTC: earlier signatures still count")
    doctor = leaf(commands, "doctor", "keeping:doctor", "tell what is missing and how to mend it")
    doctor.add_argument("--data-root", type=_path)
    clean = leaf(commands, "clean", "keeping:clean", "remove our own leftovers, nobody else's")
    clean.add_argument(
        "folders", nargs="*", type=_path, metavar="FOLDER",
        help="results that lie elsewhere than in runs/ (given to `run --out`)",
    )  # fmt: skip
    clean.add_argument("--dry-run", action="store_true")


def _group(commands: object, name: str, text: str) -> object:
    parser = commands.add_parser(name, help=text, description=text)  # type: ignore[attr-defined]
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
