"""Compute a sample of a bundle's embedding scores again, in the images that gave them.

The part of ``sealbench verify`` that needs an engine. A unit is asked a few of its queries, over
the documents that its sealed rows hold for them, by the same command, config and limits, with no
network and an empty cache. That decides no bit where a text's vector depends on the text alone; a
method of which this is not true comes out as different, as it would in a re-execution.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from runner.bundle.admission import Fault
from runner.bundle.read import BundleView, open_bundle
from runner.compare import Tolerances
from runner.embedding_run import Asked, Bench, Unmeasured, recompute
from runner.engine.api import Engine
from runner.engine.images import prove_images
from runner.engine.limits import check_limits
from runner.errors import BundleError, DataError, ImageError, StorageError, Where
from runner.host import swap_bytes
from runner.model import ImagePin, MethodPlan, Outcome, Plan, UnitOutcome
from runner.models import find_models, lack_of
from runner.progress import Reporter
from runner.protocol.bind import bind
from runner.purge import purge
from runner.rows.form import parse_row
from runner.rows.read import file_lines
from runner.run import Host
from runner.schema_faults import shown
from runner.signals import CancelToken
from runner.supervisor import Platform
from runner.tasks import task_module
from runner.verify.bundle import MAX_FAULTS, VerifyReport, VerifyRequest
from runner.verify.documents import Documents, row_parts
from runner.verify.embeddings import (
    CODE,
    PARTS,
    Embeddings,
    Listed,
    UnitComparison,
    batches,
    compare_query,
    judge,
    listed,
    sample,
    scores_of,
    unfit,
)

#: Scores that one container is asked for, and the room that the row of one may take.
MAX_SCORES = 500_000
SCORE_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest:
    """``verify`` has been answered without a fault; ``queries`` is the size of each sample."""

    verify: VerifyRequest
    queries: int
    models_root: Path | None = None


class Chosen(NamedTuple):
    """What of a plan can be computed again, and a sentence for each method that cannot."""

    methods: tuple[MethodPlan, ...]
    records: tuple[UnitOutcome, ...]
    left_out: tuple[str, ...]


def choose(documents: Documents) -> Chosen:
    """Return the ok units of executed retrieval methods that declare vectors. Pure."""
    of_task = {entry.name for entry in documents.protocol.datasets if entry.task == "retrieval"}
    units = [record for record in documents.outcomes if record.unit.dataset in of_task]
    declare = [
        method
        for method in documents.plan.methods
        if method.image is not None and "dimensions" in method.declares
    ]
    left_out = {method.name: why for method in declare if (why := unfit(method)) is not None}
    methods = {method.name for method in declare} - left_out.keys()
    records = [r for r in units if r.unit.method in methods and r.outcome is Outcome.OK]
    ran = {record.unit.method for record in records}
    return Chosen(
        methods=tuple(method for method in declare if method.name in ran),
        records=tuple(records),
        left_out=tuple(f"{name} left out: {why}" for name, why in left_out.items()),
    )


def check_embeddings(
    request: EmbeddingRequest,
    report: VerifyReport,
    *,
    host: Host,
    reporter: Reporter,
    cancel: CancelToken,
) -> VerifyReport:
    """Return the report with what came of the embeddings, and a fault for each that differs.

    Raises ``EngineError`` where none answers, ``ImageError`` for an image that is not there,
    ``DataError`` for changed data or a missing model, ``LimitError`` for a limit that this host
    cannot enforce, ``StorageError`` when the disk fails. Leaves no folder and no container.
    """
    documents, data_root = report.documents, request.verify.data_root
    if report.faults or documents is None or report.recomputed.holds is not True:
        detail = "not looked at: what does not verify is not executed"
        return replace(report, embeddings=Embeddings(holds=None, detail=detail))
    chosen = choose(documents)
    if not chosen.records:
        detail = "nothing to compute again: no ok unit of an executed method declares vectors"
        detail = "; ".join([detail, *chosen.left_out])
        return replace(report, embeddings=Embeddings(holds=None, detail=detail))
    plan = replace(
        documents.plan, methods=chosen.methods, units=tuple(r.unit for r in chosen.records)
    )
    models = _models(plan, request.models_root)
    datasets: Mapping[str, Any] = bind(documents.protocol, data_root)
    with (
        _bench(plan, models, host=host, reporter=reporter, cancel=cancel) as bench,
        _opened(request.verify, report) as view,
    ):
        check = _Check(
            documents=documents, view=view, datasets=datasets, bench=bench,
            queries=request.queries,
        )  # fmt: skip
        reporter.note(f"embedding scores of {request.queries} queries are computed again")
        reporter.run_started(plan)
        faults: list[Fault] = []
        units = [check.unit(record, faults) for record in chosen.records]
    found = judge(units, chosen.left_out, _tolerance(documents))
    room = max(0, MAX_FAULTS - len(report.faults))
    return replace(report, embeddings=found, faults=(*report.faults, *faults[:room]))


@contextmanager
def _bench(
    plan: Plan,
    models: Mapping[str, Path | None],
    *,
    host: Host,
    reporter: Reporter,
    cancel: CancelToken,
) -> Iterator[Bench]:
    """Make a host ready for a plan, and leave neither engine nor folder open."""
    with ExitStack() as stack:
        engine = host.open_engine()
        stack.callback(engine.close)
        folder = _work_folder()
        stack.callback(purge, folder)
        images = _ready(engine, plan)
        platform = Platform(
            engine=engine, cgroups=host.open_cgroups(engine.info()), patience_s=host.patience_s
        )
        yield Bench(
            run_id=plan.run_id, images=images, models=models, folder=folder,
            reporter=reporter, cancel=cancel, platform=platform,
        )  # fmt: skip


def _tolerance(documents: Documents) -> float | None:
    return Tolerances.of(documents.protocol.document).row_score


def _work_folder() -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix="sealbench-embeddings-"))
        folder.chmod(0o711)  # a method's user must pass through, and needs to see no more
    except OSError as error:
        raise StorageError(
            "storage.unwritable",
            f"cannot make a temporary folder: {error.strerror}",
            fix="name a folder that you may write to in TMPDIR",
        ) from error
    return folder


def _models(plan: Plan, root: Path | None) -> dict[str, Path | None]:
    models = find_models(plan, root)
    for method in plan.methods:
        lack = lack_of(method, models)
        if lack is not None:
            raise DataError(
                "data.no-model",
                f"{method.name} cannot be computed again: {lack}",
                fix="name the folder that holds <model name>/ folders with --models-root",
            )
    return models


def _ready(engine: Engine, plan: Plan) -> dict[ImagePin, str]:
    """Return the engine's id of every pinned image, after looking at limits and digests."""
    info, swap = engine.info(), swap_bytes()
    for method in plan.methods:
        check_limits(info, method.limits, method.waive, swap_bytes=swap)
    pins = [method.pin for method in plan.methods]
    try:
        proven = prove_images(engine, pins, f"{info.os}/{info.architecture}")
    except ImageError as error:
        if error.code != "image.absent":
            raise
        names = " ".join(dict.fromkeys(pin.name for pin in pins))
        raise ImageError(
            error.code,
            f"{error.message}, and no embedding can be computed without it",
            fix=f"build it with `sealbench images build {names}`, or load its archive with "
            "`sealbench images import`",
        ) from error
    return {pin: image.image_id for pin, image in proven.items()}


def _opened(request: VerifyRequest, report: VerifyReport) -> BundleView:
    """Open the bundle once more; it must be the one that the report is on."""
    view = open_bundle(
        request.bundle,
        protocol_id=request.protocol_id,
        trust=request.trust,
        allow_unsigned=request.allow_unsigned,
    )
    if view.admission.manifest_sha256 == report.admission.manifest_sha256:
        return view
    view.close()
    raise BundleError(
        "bundle.unstable",
        "it was replaced while it was read",
        fix="get the bundle again from its author",
        where=Where(file="manifest.json"),
    )


class _Sealed(NamedTuple):
    """One sampled row: its documents (None: it does not say), and where it stands."""

    documents: tuple[Listed, ...] | None
    ranked: tuple[str, ...]
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One bundle on a host that is ready; every finding goes into the list that is handed over."""

    documents: Documents
    view: BundleView
    datasets: Mapping[str, Any]
    bench: Bench
    queries: int

    def unit(self, record: UnitOutcome, faults: list[Fault]) -> UnitComparison:
        """Sample one unit, have it computed again, and compare."""
        unit = record.unit
        method = next(m for m in self.documents.plan.methods if m.name == unit.method)
        self.bench.reporter.unit_started(unit)
        queries = self._sampled(record)
        found = UnitComparison(
            method=unit.method, dataset=unit.dataset, repeat=unit.repeat, queries=tuple(queries)
        )
        sealed = {
            query: row for query, row in self._sealed(record, method, set(queries)) if row.ranked
        }
        wanted = {query: sealed[query].ranked for query in queries if query in sealed}
        most = min(MAX_SCORES, method.limits.output_bytes // SCORE_BYTES)
        left_ms = method.limits.wall_ms
        try:
            for part in batches(wanted, most):
                asked = Asked(
                    dataset=self.datasets[unit.dataset], queries=part, left_ms=left_ms,
                    documents=frozenset(name for query in part for name in wanted[query]),
                )  # fmt: skip
                again, used_ms = recompute(self.bench, record, method, asked)
                left_ms -= used_ms
                for query in part:
                    found = self._compared(found, query, (sealed[query], again[query]), faults)
        except Unmeasured as why:
            return replace(found, unmeasured=str(why))
        return found

    def _sampled(self, record: UnitOutcome) -> list[str]:
        protocol, plan, name = self.documents.protocol, self.documents.plan, record.unit.dataset
        task = task_module(protocol.dataset(name).task)
        ids = task.expected_ids(protocol, self.datasets[name], plan.splits)
        digest = self.view.admission.manifest_sha256 or ""
        return sample(digest, name, ids, self.queries)

    def _sealed(
        self, record: UnitOutcome, method: MethodPlan, queries: set[str]
    ) -> Iterator[tuple[str, _Sealed]]:
        part, depth = PARTS[str(method.declares["mode"])], self.documents.protocol.top_k
        for file in row_parts(self.view, record.unit):
            with self.view.open_verified(file) as stream:
                for number, line in enumerate(file_lines(stream), 1):
                    row = parse_row(line)
                    if row["query_id"] in queries:
                        ranked = tuple(item.document for item in listed(row, None, depth) or ())
                        found = listed(row, part, depth)
                        yield row["query_id"], _Sealed(found, ranked, file, number)

    def _compared(
        self,
        found: UnitComparison,
        query: str,
        rows: tuple[_Sealed, Mapping[str, Any]],
        faults: list[Fault],
    ) -> UnitComparison:
        """Add one query to what was found of its unit."""
        sealed, row = rows
        mode = str(self._declared(found.method)["mode"])
        head = f"method {found.method}, dataset {found.dataset}, query {shown(query)}"

        def fault(text: str) -> None:
            message = f"{head}{text}"
            faults.append(Fault(file=sealed.file, code=CODE, message=message, line=sealed.line))

        again = scores_of(row, PARTS[mode])
        if row["error"] is not None:
            fault(f": sealed with a ranking, and now it fails: {shown(row['error'])}")
            return replace(found, differing=found.differing + 1)
        if again is None or sealed.documents is None:
            if (again is None) != (sealed.documents is None):
                fault(": its scores by embedding are in one of the sealed and recomputed rows only")
                return replace(found, differing=found.differing + 1)
            raise Unmeasured("its rows have no scores by embedding as evidence")
        seen = compare_query(sealed.documents, again, _tolerance(self.documents))
        for problem in seen.problems:
            fault(f", document {shown(problem.document)}: {problem.message}")
        return replace(
            found,
            scores=found.scores + seen.scores,
            moved=found.moved + seen.moved,
            largest=max(found.largest, seen.largest),
            differing=found.differing + len(seen.problems),
        )

    def _declared(self, name: str) -> Mapping[str, Any]:
        return next(m.declares for m in self.documents.plan.methods if m.name == name)
