"""``report``: a verified bundle as one HTML page."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from runner.bundle.durable import put_file
from runner.bundle.read import examine
from runner.commands.output import emit
from runner.commands.verifying import bundle_folder, expected_protocol, trust_of
from runner.errors import EXIT_OK, BundleError
from runner.protocol.load import Protocol, parse_protocol
from runner.report.benchmark import benchmark_page
from runner.trust import Trust
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle


def report(arguments: Namespace) -> int:
    """Verify a bundle and write its page; a bundle with a fault has none."""
    with ExitStack() as stack:
        found = verified(arguments, bundle_folder(arguments, stack))
    text = benchmark_page(found, arguments.baseline)
    target: Path = arguments.out
    put_file(target, text.encode("utf-8"), 0o644, replace=True)
    emit(arguments, {"report": str(target), **found.as_dict()}, f"wrote {target}")
    return EXIT_OK


def verified(arguments: Namespace, folder: Path) -> VerifyReport:
    """Return the report on an intact bundle; ``BundleError`` with the first fault else.

    Without ``--protocol`` the bundle is held to the protocol that it claims for itself. Its scores
    are recomputed with ``--data-root``, by the bundle's own copy of the protocol if there is only
    an id: that copy is the protocol with this id or nothing.
    """
    trust = trust_of(arguments)
    if arguments.protocol is not None:
        protocol_id, protocol = expected_protocol(arguments.protocol)
    else:
        protocol = _own_protocol(folder, trust, arguments.allow_unsigned)
        protocol_id = protocol.protocol_id
    if protocol is None and arguments.data_root is not None:
        own = _own_protocol(folder, trust, arguments.allow_unsigned)
        protocol = own if own.protocol_id == protocol_id else None
    found = verify_bundle(
        VerifyRequest(
            bundle=folder,
            protocol_id=protocol_id,
            trust=trust,
            protocol=protocol,
            # without a protocol the bundle is of another one, and refused for that
            data_root=arguments.data_root if protocol is not None else None,
            allow_unsigned=arguments.allow_unsigned,
        )
    )
    if found.faults or found.documents is None:
        raise BundleError(
            "bundle.refused",
            f"the bundle does not verify: {found.faults[0]}",
            fix="see `sealbench verify`; get the bundle again from its author",
        )
    return found


def _own_protocol(folder: Path, trust: Trust | None, allow_unsigned: bool) -> Protocol:
    """The bundle's own copy of its protocol, read after the signature was checked."""
    # Without the keys that are trusted every signature would be a stranger's.
    with examine(folder, protocol_id=None, trust=trust, allow_unsigned=allow_unsigned) as opening:
        if opening.view is None:
            raise BundleError(
                "bundle.refused",
                f"the bundle cannot be read: {opening.faults[0]}",
                fix="see `sealbench verify`; get the bundle again from its author",
            )
        return parse_protocol(opening.view.read_verified("protocol.json"), Path("protocol.json"))
