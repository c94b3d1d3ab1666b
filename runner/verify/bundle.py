"""Is a bundle what it claims to be? Three levels: intact, recomputed, reproduced.

*Intact*: a trusted key signed it for the expected protocol, every byte is as signed, nothing is
missing or extra, and the documents tell one story. *Recomputed*: with the labels at hand, every
score, interval and rank came out again from the rows; without them it is left open, and the labels
in the bundle's own score files must give the same figures. *Reproduced*: an independent, trusted
reviewer countersigned that a re-execution came out the same. Knows no engine and no supervisor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.bundle.admission import Admission, Fault
from runner.bundle.documents import earlier
from runner.bundle.read import BundleView, examine
from runner.bundle.reviews import (
    Property,
    Review,
    Subject,
    read_reviews,
    reproduced_by,
    signatures_folder,
)
from runner.expectation import cut_short
from runner.protocol.load import Protocol
from runner.trust import Trust
from runner.verify.documents import Documents, read_documents
from runner.verify.embeddings import UNASKED, Embeddings
from runner.verify.fusion import fusion_faults
from runner.verify.reproduction import read_reproduction

MAX_FAULTS = 100
LEVELS = ("intact", "recomputed", "reproduced")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What to verify, against what. ``protocol`` is needed to recompute from ``data_root``.

    ``signatures`` is the folder of countersignatures where it is not beside the bundle;
    ``reviewers`` how many independent people must have reproduced it.
    """

    bundle: Path
    protocol_id: str
    trust: Trust | None
    protocol: Protocol | None = None
    data_root: Path | None = None
    allow_unsigned: bool = False
    reference: bool = False
    signatures: Path | None = None
    reviewers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level: ``holds`` is None when it was not looked at; ``detail`` says why, or what."""

    holds: bool | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found. ``documents`` is None when they could not be read.

    ``reproduction`` is the document of a bundle that is itself a re-execution of another;
    ``ignored`` are countersignatures by people whom this trust file does not know: no fault of
    the bundle, and worth nothing.
    """

    faults: tuple[Fault, ...]
    intact: Level
    recomputed: Level
    reproduced: Level
    admission: Admission
    reviews: tuple[Review, ...] = ()
    documents: Documents | None = None
    reproduction: Mapping[str, Any] | None = None
    ignored: tuple[Fault, ...] = ()
    embeddings: Embeddings = UNASKED

    def level(self, name: str) -> Level:
        """Return a level by its name in ``LEVELS``."""
        found: Level = getattr(self, name)
        return found

    @property
    def complete(self) -> bool | None:
        """Whether the run came to its end; False for a cancelled one, None where faults leave
        nothing to believe. An incomplete bundle may well be intact: it holds a part of the plan.
        """
        return None if self.faults or self.documents is None else self.unfinished == 0

    @property
    def unfinished(self) -> int:
        """How many planned units a cancellation kept from their turn or their end."""
        return 0 if self.documents is None else sum(map(cut_short, self.documents.outcomes))

    def as_dict(self) -> dict[str, Any]:
        """The form that ``--json`` prints."""
        admission = self.admission
        claims = admission.claims
        return {
            "faults": [
                {"file": f.file, "line": f.line, "code": f.code, "message": f.message}
                for f in self.faults
            ],
            **{
                name: {"holds": self.level(name).holds, "detail": self.level(name).detail}
                for name in LEVELS
            },
            "complete": self.complete,
            "embeddings": self.embeddings.as_dict(),
            "signer": None
            if admission.signer is None
            else {
                "keyid": admission.signer.keyid,
                "principal": admission.decision and admission.decision.principal,
                "trusted": bool(admission.decision and admission.decision.trusted),
            },
            "run_id": claims and claims.run_id,
            "protocol_id": claims and claims.protocol_id,
            "claimed": claims and {"started": claims.started, "finished": claims.finished},
            "reviews": [
                {
                    "file": review.file,
                    "keyid": review.signer.keyid,
                    "principal": review.principal,
                    "properties": [item.value for item in review.properties],
                    "independent": review.independent,
                    "time_created": review.time_created,
                    "before_run": claims is not None
                    and earlier(review.time_created, claims.finished),
                }
                for review in self.reviews
            ],
            "ignored": [{"file": f.file, "code": f.code} for f in self.ignored],
            "reproduction": self.reproduction
            and {name: self.reproduction[name] for name in ("original", "verdict", "reason")},
        }


def verify_bundle(request: VerifyRequest) -> VerifyReport:
    """Verify a bundle's folder; never raises for what the bundle holds.

    Raises ``BundleError`` when there is no such folder and ``DataError`` when the data root does
    not hold the frozen data: neither says anything about the bundle.
    """
    opening = examine(
        request.bundle,
        protocol_id=request.protocol_id,
        trust=request.trust,
        allow_unsigned=request.allow_unsigned,
    )
    with opening:
        faults = list(opening.faults)
        if opening.view is None:
            return _nothing(tuple(faults), opening.admission)
        keys = () if request.trust is None else request.trust.public_keys
        documents = read_documents(opening.view, request.protocol_id, faults, keys)
        reproduction = read_reproduction(opening.view, documents, faults)
        recomputed = _recompute(request, opening.view, documents, faults)
        if documents is not None:
            faults += fusion_faults(opening.view, documents, faults)
        faults += opening.view.check_remaining()
        reviews, review_faults = _reviews(request, opening.admission)
    shown = tuple(_distinct(faults)[:MAX_FAULTS])
    return VerifyReport(
        faults=(*shown, *(fault for fault in review_faults if not _is_strangers(fault))),
        intact=_intact(shown, opening.admission),
        recomputed=recomputed,
        reproduced=_reproduced(reviews, request.reviewers, intact=not shown),
        admission=opening.admission,
        reviews=reviews,
        documents=documents,
        reproduction=reproduction,
        ignored=tuple(filter(_is_strangers, review_faults)),
    )


def _recompute(
    request: VerifyRequest, view: BundleView, documents: Documents | None, faults: list[Fault]
) -> Level:
    from runner.verify.scores import ScoreCheck

    if documents is None:
        return Level(holds=None, detail="the documents could not be read")
    before = len(faults)
    check = ScoreCheck(view=view, documents=documents, faults=faults, reference=request.reference)
    if request.data_root is None or request.protocol is None:
        detail = check.from_score_files()
        if len(faults) > before:
            detail = "the sealed score files give other figures, see the faults"
        return Level(holds=None, detail=detail)
    from runner.protocol.bind import bind

    datasets = bind(request.protocol, request.data_root)
    check.recompute(datasets)
    if len(faults) > before:
        return Level(holds=False, detail="the rows and labels give other figures, see the faults")
    count = len(documents.results["per_dataset"]) + len(documents.results["aggregate"])
    return Level(holds=True, detail=f"{count} scores, their intervals and ranks came out again")


def _intact(faults: tuple[Fault, ...], admission: Admission) -> Level:
    if faults:
        files = ", ".join(dict.fromkeys(fault.file for fault in faults))
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        return Level(holds=False, detail=f"{count} in {files}")
    if admission.signer is None:
        return Level(holds=True, detail="unsigned: unchanged as far as its own manifest says")
    who = admission.decision and admission.decision.principal
    return Level(holds=True, detail=f"signed by {who}, key {admission.signer.keyid[:16]}")


def _reviews(
    request: VerifyRequest, admission: Admission
) -> tuple[tuple[Review, ...], tuple[Fault, ...]]:
    if request.trust is None or admission.manifest is None or admission.manifest_sha256 is None:
        return (), ()
    subject = Subject(
        manifest_sha256=admission.manifest_sha256,
        benchmark_id=admission.manifest.benchmark_id,
        runner=admission.signer,
        runner_principal=admission.decision.principal if admission.decision else None,
    )
    folder = request.signatures or signatures_folder(request.bundle)
    return read_reviews(folder, subject, request.trust)


def _is_strangers(fault: Fault) -> bool:
    """Anybody may put a countersignature beside a bundle; that must not make it refused."""
    return fault.code == "dsse.unknown-signer" or fault.code.startswith("trust.")


def _reproduced(reviews: tuple[Review, ...], reviewers: int, *, intact: bool) -> Level:
    counted = [r for r in reviews if r.independent and Property.RUN_REPRODUCED in r.properties]
    if not intact:
        return Level(holds=False, detail="a bundle that is not intact is not reproduced")
    if not counted:
        return Level(holds=False, detail="no independent trusted reviewer has countersigned")
    people = list(dict.fromkeys(review.principal for review in counted))
    who = ", ".join(people)
    # Neither one person with two keys nor one key under two names is two reviewers.
    count = min(len(people), reproduced_by(counted))
    if count < reviewers:
        return Level(
            holds=False, detail=f"countersigned by {who}: {count} of {reviewers} reviewers"
        )
    return Level(holds=True, detail=f"countersigned by {who}")


def _nothing(faults: tuple[Fault, ...], admission: Admission) -> VerifyReport:
    unread = Level(holds=None, detail="nothing in the bundle may be believed")
    return VerifyReport(
        faults=faults,
        intact=_intact(faults, admission),
        recomputed=unread,
        reproduced=Level(holds=False, detail="a bundle that is not intact is not reproduced"),
        admission=admission,
    )


def _distinct(faults: list[Fault]) -> list[Fault]:
    return list(dict.fromkeys(faults))


def locate(path: Path) -> Path:
    """Return the bundle's folder: the one given, or ``bundle/`` in it. No archives here."""
    if (path / "bundle" / "manifest.json").exists() and not (path / "manifest.json").exists():
        return path / "bundle"
    return path
