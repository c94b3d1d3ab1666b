"""``verify`` and ``bundle export|import``: what reviewers do. One option alone asks an engine."""

from __future__ import annotations

import re
import sys
import tempfile
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from runner import keys, trust
from runner.bundle.admission import OTHER_VERSION
from runner.bundle.archive import export_archive, import_archive
from runner.bundle.documents import earlier
from runner.bundle.read import open_bundle
from runner.bundle.reviews import signatures_folder
from runner.commands.output import emit
from runner.errors import (
    EXIT_CANCELLED,
    EXIT_NOT_COMPARABLE,
    EXIT_OK,
    BundleError,
    UsageError,
    Where,
)
from runner.protocol.load import Protocol, load_protocol
from runner.trust import Trust
from runner.verify.bundle import LEVELS, VerifyReport, VerifyRequest, locate, verify_bundle

_PROTOCOL_ID = re.compile(r"sha256:[0-9a-f]{64}")
_OF_ANOTHER = "the bundle is of another version of sealbench, and this one cannot judge it"
_FALSE = "the bundle is not what it claims to be"
MARKS = {True: "yes", False: "NO", None: "-"}


def verify(arguments: Namespace) -> int:
    """Verify a bundle; exit code 11 when it is refused or the required level does not hold, 24 when
    embeddings were asked for and could not be compared."""
    protocol_id, protocol = expected_protocol(arguments.protocol)
    data_root = arguments.data_root
    if data_root is not None and protocol is None:
        raise UsageError(
            "usage.protocol-file",
            "--data-root recomputes scores, which needs the protocol itself, not only its id",
            fix="give --protocol a *.protocol.json file",
        )
    _check_embeddings_asked(arguments)
    cancelled = False
    with ExitStack() as stack:
        request = VerifyRequest(
            bundle=bundle_folder(arguments, stack),
            protocol_id=protocol_id,
            trust=trust_of(arguments),
            protocol=protocol,
            data_root=data_root,
            allow_unsigned=arguments.allow_unsigned,
            reference=arguments.reference,
            signatures=signatures_of(arguments.bundle),
            reviewers=arguments.reviewers,
        )
        report = verify_bundle(request)
        if arguments.embeddings is not None:
            report, cancelled = _with_embeddings(arguments, request, report)
    held = not report.faults and bool(report.level(arguments.require).holds)
    compared = arguments.embeddings is None or report.embeddings.holds is True
    text = report_text(report, embeddings=arguments.embeddings is not None)
    emit(arguments, {"ok": held and compared, **report.as_dict()}, text)
    if held and not compared:
        return EXIT_CANCELLED if cancelled else EXIT_NOT_COMPARABLE
    return EXIT_OK if held else BundleError.exit_code


def _check_embeddings_asked(arguments: Namespace) -> None:
    if arguments.embeddings is None:
        return
    if arguments.embeddings < 1:
        raise UsageError(
            "usage.embeddings",
            f"--embeddings {arguments.embeddings}",
            fix="name how many queries of each dataset to look at, such as 20",
        )
    if arguments.data_root is None:
        raise UsageError(
            "usage.embeddings-data",
            "--embeddings computes from the texts, and no --data-root says where they are",
            fix="give --data-root DIR (make: DATA_ROOT=DIR)",
        )


def _with_embeddings(
    arguments: Namespace, request: VerifyRequest, report: VerifyReport
) -> tuple[VerifyReport, bool]:
    """Compute a sample of the embeddings again; also tell whether somebody cancelled that."""
    from runner.embedding_check import EmbeddingRequest, check_embeddings
    from runner.engine.docker import DockerEngine
    from runner.progress import make_reporter
    from runner.run import Host
    from runner.signals import CancelToken, cancel_on_signals

    asked = EmbeddingRequest(
        verify=request, queries=arguments.embeddings, models_root=arguments.models_root
    )
    reporter = make_reporter("quiet" if arguments.json else "auto", sys.stderr)
    try:
        with cancel_on_signals(CancelToken()) as cancel:
            found = check_embeddings(
                asked, report, host=Host(open_engine=DockerEngine), reporter=reporter, cancel=cancel
            )
            return found, cancel.cancelled
    finally:
        reporter.close()


def expected_protocol(text: str) -> tuple[str, Protocol | None]:
    """Return (protocol id, protocol or None) of a file's path or an id."""
    if text.startswith("sha256:"):
        if not _PROTOCOL_ID.fullmatch(text):
            raise UsageError(
                "usage.protocol-id",
                f"{text!r} is no protocol id",
                fix="give the file of the protocol, or sha256: and 64 of 0-9 a-f",
            )
        return text, None
    protocol = load_protocol(Path(text))
    return protocol.protocol_id, protocol


def trust_of(arguments: Namespace) -> Trust | None:
    """Whose signatures count: the trust file, the key named, or your own key."""
    if arguments.trust is not None and arguments.key is not None:
        raise UsageError(
            "usage.trust-and-key", "both --trust and --key are given", fix="give one of them"
        )
    if arguments.trust is not None:
        return trust.load(arguments.trust, not_inside=arguments.bundle)
    if arguments.key is not None:
        return trust.explicit([keys.load_public(arguments.key)])
    own = keys.default_public_path()
    if own.exists():
        return trust.explicit([keys.load_public(own)])
    if arguments.allow_unsigned:
        return None
    raise UsageError(
        "usage.no-trust",
        "nothing says whose signature counts, and you have no key of your own",
        fix="give --trust FILE or --key PUBLIC.pem",
    )


def signatures_of(bundle: Path) -> Path:
    """The ``bundle.sigs`` beside a bundle, folder or tar, as it was given."""
    return signatures_folder(locate(bundle) if bundle.is_dir() else bundle)


def bundle_folder(arguments: Namespace, stack: ExitStack) -> Path:
    """The bundle's folder; a tar is unpacked into a temporary one first."""
    path: Path = arguments.bundle
    if path.is_dir():
        return locate(path)
    if not path.exists():
        raise BundleError(
            "bundle.missing", "no such file or folder", fix="check the path",
            where=Where(file=str(path)),
        )  # fmt: skip
    temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="sealbench-verify-"))
    folder = Path(temporary) / "bundle"
    import_archive(path, folder, trust=trust_of(arguments), allow_unsigned=arguments.allow_unsigned)
    return folder


def report_text(report: VerifyReport, *, embeddings: bool = False) -> str:
    """The report for people: the levels, then every fault, then what a signature is worth."""
    lines = [
        f"{name:<11} {MARKS[report.level(name).holds]:<4} {report.level(name).detail}"
        for name in LEVELS
    ]
    if embeddings:
        found = report.embeddings
        lines.append(f"{'embeddings':<11} {MARKS[found.holds]:<4} {found.detail}")
    if report.complete is False and report.documents is not None:
        planned = len(report.documents.outcomes)
        lines.append(
            f"INCOMPLETE  the run was cancelled: {report.unfinished} of {planned} planned units "
            "did not come to their end and have no scores"
        )
    lines += signature_lines(report)
    lines += [f"fault: {fault}" for fault in report.faults]
    if report.faults:
        versions = all(fault.code in OTHER_VERSION for fault in report.faults)
        lines.append(f"REFUSED: {_OF_ANOTHER if versions else _FALSE}")
    elif report.admission.signer is not None:
        lines.append(
            "A signature shows who sealed this and that it is unchanged; "
            "not that it is honest, and not when it was made."
        )
    return "\n".join(lines)


def signature_lines(report: VerifyReport) -> list[str]:
    """Who signed what, and when they claim to have done so; then whose re-execution this is."""
    lines, admission = [], report.admission
    if admission.signer is not None and admission.claims is not None:
        who = admission.decision and admission.decision.principal
        lines.append(
            f"submitter   {who or 'nobody known'} (key {admission.signer.keyid[:16]}): "
            f"the run, claimed {admission.claims.finished}"
        )
    for review in report.reviews:
        what = ", ".join(item.value for item in review.properties)
        words = "" if review.independent else "; NOT independent: the submitter's own"
        claims = admission.claims
        if claims is not None and earlier(review.time_created, claims.finished):
            words += "; before the run claims to have ended: a clock was wrong"
        lines.append(
            f"reviewer    {review.principal} (key {review.signer.keyid[:16]}): {what}, "
            f"claimed {review.time_created}{words}"
        )
    lines += [f"ignored     {fault.file}: {fault.message}" for fault in report.ignored]
    if report.reproduction is not None:
        original = report.reproduction["original"]["manifest_sha256"]
        lines.append(f"re-executes bundle sha256:{original}: {report.reproduction['verdict']}")
    return lines


def export(arguments: Namespace) -> int:
    """Write the canonical tar of a bundle; every byte is checked while it is copied."""
    folder = locate(arguments.bundle)
    with open_bundle(
        folder, protocol_id=None, trust=trust_of(arguments),
        allow_unsigned=arguments.allow_unsigned,
    ) as view:  # fmt: skip
        made = export_archive(view, arguments.tar, gzip=arguments.tar.suffix == ".gz")
    emit(arguments, {"tar": str(made)}, f"wrote {made}")
    return EXIT_OK


def import_(arguments: Namespace) -> int:
    """Unpack a tar into a new folder; nothing is left when anything is wrong with it."""
    admission = import_archive(
        arguments.tar, arguments.folder, trust=trust_of(arguments),
        allow_unsigned=arguments.allow_unsigned,
    )  # fmt: skip
    document = {"folder": str(arguments.folder), "manifest_sha256": admission.manifest_sha256}
    emit(arguments, document, f"unpacked into {arguments.folder}; now verify it")
    return EXIT_OK
