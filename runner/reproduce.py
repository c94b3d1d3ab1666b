"""Execute a sealed bundle's plan again, in identical containers, and say whether it came out alike.

Verifying comes first: what is not intact, or whose scores do not follow from its rows, is not
executed. The plan is the bundle's own, not one resolved anew: the same images by digest, commands,
configs, seeds and limits. What comes of it is sealed as a bundle of its own, which names the
original by digest; the original is only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.bundle.documents import earlier, parse_canonical
from runner.bundle.read import BundleView, Opening, examine
from runner.bundle.reviews import Property, write_review
from runner.canonical import canonical_bytes
from runner.clock import Clock, SystemClock
from runner.compare import (
    Comparison,
    Tolerances,
    UnitComparison,
    UnitSide,
    Verdict,
    compare_runs,
    compare_unit,
    rows_matter,
)
from runner.compare_rows import compare_rows
from runner.engine.api import Engine
from runner.errors import BundleError, Where
from runner.keys import SigningKey
from runner.manifest import parse_run_manifest
from runner.model import ImagePin, Unit, UnitOutcome
from runner.models import find_models
from runner.modules import load_sealed
from runner.obtain import Sources, obtain
from runner.progress import Reporter
from runner.protocol.bind import bind
from runner.protocol.load import Protocol
from runner.reproduction import (
    NAME,
    REPRODUCED,
    ImageSource,
    Original,
    reproduction_document,
)
from runner.rows.read import file_lines
from runner.run import Again, Finished, Host, Resolved, RunOptions, RunResult, run_resolved
from runner.scoring import part_lines
from runner.signals import CancelToken
from runner.tasks import task_module
from runner.trust import Trust
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from runner.verify.documents import Documents, row_parts
from runner.workspace import result_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproduceRequest:
    """What to execute again. ``protocol_id`` is the one that the reviewer expects.

    ``key`` is the reviewer's: it seals the new bundle and, where ``countersign`` names the
    ``bundle.sigs`` folder of the original, signs the review. None leaves both unsigned.
    """

    bundle: Path
    protocol_id: str
    trust: Trust | None
    data_root: Path
    key: SigningKey | None
    out: Path | None = None
    countersign: Path | None = None
    allow_unsigned: bool = False
    sources: Sources = field(default_factory=Sources)
    fresh: bool = False
    models_root: Path | None = None  # holds <model name>/ folders


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """What it came to. ``document`` is reproduction.json; ``review`` the countersignature's file.

    ``report`` is the verifier's on the original; ``independent`` tells whether who countersigned is
    another than who submitted, without which it does not count as reproduced.
    """

    document: Mapping[str, Any]
    result: RunResult
    report: VerifyReport
    review: Path | None
    independent: bool = True

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.document["verdict"])


def reproduce(
    request: ReproduceRequest, *, host: Host, reporter: Reporter, cancel: CancelToken
) -> Reproduction:
    """Verify, execute again, compare, seal and countersign.

    Raises ``BundleError`` when the original does not verify, ``DataError`` when the data are not
    the frozen ones, ``ImageError`` when an image is nowhere to be had, and whatever a run raises.
    """
    report, view = _verified(request)
    with view:
        documents = report.documents
        assert documents is not None  # noqa: S101 - _verified refuses a report without them
        session = _Session(request=request, view=view, documents=documents, clock=SystemClock())
        resolved = session.resolved()
        out = result_folder(resolved.plan, request.out, suffix="-again")
        options = RunOptions(
            data_root=request.data_root,
            out=out,
            key=request.key,
            fresh=request.fresh,
            again=Again(
                obtain=session.obtain,
                attach=session.attach,
                work=f".work-again-{session.original.manifest_sha256[:12]}",
            ),
        )
        result = run_resolved(resolved, options, host=host, reporter=reporter, cancel=cancel)
        document = session.documents_made[0]
        review = _countersign(request, session, Verdict(document["verdict"]))
    return Reproduction(
        document=document,
        result=result,
        report=report,
        review=review,
        independent=review is None or _independent(request, report),
    )


def _verified(request: ReproduceRequest) -> tuple[VerifyReport, BundleView]:
    """Return the report on the original, without a fault, and its open folder."""
    opening = examine(
        request.bundle,
        protocol_id=request.protocol_id,
        trust=request.trust,
        allow_unsigned=request.allow_unsigned,
    )
    view = opening.view
    if view is None or opening.faults:
        with opening:
            raise _not_opened(opening)
    try:
        report = verify_bundle(
            VerifyRequest(
                bundle=request.bundle,
                protocol_id=request.protocol_id,
                protocol=_protocol_of(view),
                trust=request.trust,
                data_root=request.data_root,
                allow_unsigned=request.allow_unsigned,
            )
        )
        if report.intact.holds is not True or report.recomputed.holds is not True:
            for fault in report.faults:
                raise _refused(fault.code, fault.message, fault.file)
        if report.admission.manifest_sha256 != view.admission.manifest_sha256:
            raise _refused("bundle.unstable", "it was replaced while it was read", "manifest.json")
        if report.documents is None or report.recomputed.holds is not True:
            raise _refused("bundle.not-recomputed", report.recomputed.detail, "results.json")
    except BaseException:
        view.close()
        raise
    return report, view


def _not_opened(opening: Opening) -> BundleError:
    """The first fault; one that another version of the schemas explains says which that was."""
    fault = opening.faults[0]
    other = any(one.code.startswith(("bundle.schema", "schema.")) for one in opening.faults)
    claims = opening.admission.claims
    if not other or claims is None:
        return _refused(fault.code, fault.message, fault.file)
    commit = claims.source_commit or "of an unknown commit"
    return BundleError(
        "bundle.other-version",
        f"it was made by another version of sealbench: {fault.message}",
        fix=f"reproduce it with the version that made it: {claims.runner_version}, commit {commit}",
        where=Where(file=fault.file),
    )


def _protocol_of(view: BundleView) -> Protocol:
    """The bundle's own protocol, whose id is the expected one: opening has compared them."""
    from runner.protocol.load import parse_protocol

    protocol = parse_protocol(view.read_verified("protocol.json"), Path("protocol.json"))
    if protocol.protocol_id != view.manifest.benchmark_digest:
        raise _refused("bundle.other-protocol", "it is not the expected one", "protocol.json")
    return protocol


def _refused(code: str, message: str, file: str) -> BundleError:
    return BundleError(
        code,
        f"the bundle does not verify, so it was not executed: {message}",
        fix="see all of its faults with `sealbench verify`; get the bundle again from its author",
        where=Where(file=file),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """One original and what is made of it; ``documents_made`` keeps reproduction.json."""

    request: ReproduceRequest
    view: BundleView
    documents: Documents
    clock: Clock
    sources: dict[ImagePin, ImageSource] = field(default_factory=dict)
    documents_made: list[dict[str, Any]] = field(default_factory=list)

    @property
    def original(self) -> Original:
        admission = self.view.admission
        claims, signer = admission.claims, admission.signer
        return Original(
            manifest_sha256=admission.manifest_sha256 or "",
            protocol_id=self.documents.protocol.protocol_id,
            run_id=self.documents.plan.run_id,
            signer=None if signer is None else signer.keyid,
            started=None if claims is None else claims.started,
            finished=None if claims is None else claims.finished,
        )

    def resolved(self) -> Resolved:
        """The sealed plan with the data, hashed again: what a run needs instead of a manifest."""
        documents, data_root = self.documents, self.request.data_root
        raw = self.view.read_verified("run.yaml")
        return Resolved(
            manifest=parse_run_manifest(raw, Path("run.yaml")),
            protocol=documents.protocol,
            plan=documents.plan,
            datasets=bind(documents.protocol, data_root),
            data_root=data_root,
            models=find_models(documents.plan, self.request.models_root),
            modules={
                method.module: load_sealed(method.module, self.view.read_verified)
                for method in documents.plan.methods
                if method.module is not None
            },
        )

    def obtain(self, engine: Engine) -> dict[ImagePin, ImagePin]:
        """Get every image; return the plan's pins with the digests that the original recorded."""
        pins = self._recorded()
        found = obtain(engine, pins.values(), self.request.sources)
        for pin, recorded in pins.items():
            self.sources[pin] = ImageSource(
                name=recorded.name,
                image_id=recorded.image_id or recorded.digest,
                manifest_digest=recorded.manifest_digest,
                platform=recorded.platform,
                source=found[recorded],
            )
        return pins

    def _recorded(self) -> dict[ImagePin, ImagePin]:
        data = self.view.read_verified("images.json")
        listed = {
            name: entry
            for entry in parse_canonical(data, kind="images", file="images.json")["images"]
            for name in entry["methods"]
        }
        return {
            method.image: replace(method.image, image_id=listed[method.name]["image_id"])
            for method in self.documents.plan.methods
            if method.image is not None
        }

    def attach(self, finished: Finished) -> dict[str, bytes]:
        """Compare with the original; the document is sealed with the rest."""
        document = reproduction_document(
            self.original, self.compared(finished), self.sources.values(), list(self._notes())
        )
        self.documents_made[:] = [document]
        return {NAME: canonical_bytes(document)}

    def compared(self, finished: Finished) -> Comparison:
        """Compare unit by unit, then scores and ranks."""
        protocol = self.documents.protocol
        tolerances = Tolerances.of(protocol.document)
        units = [
            self._unit(then, now, finished, tolerances)
            for then, now in zip(self.documents.outcomes, finished.outcomes, strict=True)
        ]
        return compare_runs(units, self.documents.results, finished.results, tolerances)

    def _unit(
        self, then: UnitOutcome, now: UnitOutcome, finished: Finished, tolerances: Tolerances
    ) -> UnitComparison:
        one, other = _side(then), _side(now)
        rows = None
        if rows_matter(one, other):
            parts = finished.files[now.unit.unit_id].parts()
            task = task_module(self.documents.protocol.dataset(now.unit.dataset).task)
            rows = compare_rows(
                lambda: self._original_lines(then.unit),
                lambda: part_lines(parts),
                task.ROW_KIND,
                tolerances.row_score,
            )
        return compare_unit(now.unit, one, other, rows)

    def _original_lines(self, unit: Unit) -> Iterable[bytes]:
        for part in row_parts(self.view, unit):
            with self.view.open_verified(part) as stream:
                yield from file_lines(stream)

    def _notes(self) -> Iterable[str]:
        finished, now = self.original.finished, self.clock.utc_stamp()
        if finished is not None and earlier(now, finished):
            yield (
                f"this machine's clock says {now}, and the original claims to have ended at "
                f"{finished}: one of the two clocks is wrong"
            )


def _side(record: UnitOutcome) -> UnitSide:
    return UnitSide(outcome=record.outcome, reason=record.reason)


def _independent(request: ReproduceRequest, report: VerifyReport) -> bool:
    """Is the reviewer somebody else than the submitter, as far as the reviewer's trust tells?"""
    submitter, reviewer = report.admission.signer, request.key
    if submitter is None or reviewer is None:
        return True
    trust = request.trust or Trust()
    known = [trust.find(key.raw) for key in (submitter, reviewer.public)]
    people = {key.principal for key in known if key is not None}
    same_person = None not in known and len(people) == 1
    return submitter.raw != reviewer.public.raw and not same_person


def _countersign(request: ReproduceRequest, session: _Session, verdict: Verdict) -> Path | None:
    """Sign what the reviewer saw hold; that it was reproduced only where it was."""
    if request.countersign is None or request.key is None:
        return None
    held = [Property.BUNDLE_VALID, Property.SCORES_RECOMPUTED]
    if verdict in REPRODUCED:
        held.append(Property.RUN_REPRODUCED)
    return write_review(
        request.countersign,
        session.original.manifest_sha256,
        held,
        time_created=session.clock.utc_stamp(),
        key=request.key,
    )
