"""The words of the design as frozen dataclasses: what a run is made of and what came of it.

Units are in the names: ``_ms`` milliseconds, ``_bytes`` bytes, ``_milli`` thousandths of a CPU.
Integers only, so that every record has canonical bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from runner.canonical import Json


class Outcome(StrEnum):
    """What became of one planned unit. A closed vocabulary."""

    OK = "ok"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    INVALID_OUTPUT = "invalid_output"
    OUTPUT_LIMIT = "output_limit"
    ENGINE_ERROR = "engine_error"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hard limits of one method. ``wall_ms`` covers all its units of one repeat, in order."""

    wall_ms: int = 30 * 60_000
    grace_ms: int = 5_000
    memory_bytes: int = 2 << 30
    cpus_milli: int = 1_000
    pids: int = 128
    output_bytes: int = 1 << 30
    output_files: int = 1_000
    log_bytes: int = 1 << 20
    tmp_bytes: int = 256 << 20
    shm_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePin:
    """An image chosen by content. At least one of the digests is set.

    ``image_id`` is the config digest (the id on the classic image store); ``manifest_digest`` is
    the registry's. ``name`` is for people only and is no identity.
    """

    name: str
    image_id: str | None = None
    manifest_digest: str | None = None
    repository: str | None = None
    platform: str = "linux/amd64"
    published: bool = True

    @property
    def digest(self) -> str:
        """The digest that identifies the image in a ``method_id``."""
        return self.image_id or self.manifest_digest or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of results that somebody else's run made for one dataset; ``sha256:<hex>``."""

    dataset: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """The hosts that a method may reach, as ``host:port``, sorted; a unit's bytes both ways."""

    allow: tuple[str, ...]
    max_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPin:
    """Model files that a method sees at ``/models/<name>``: the 40 hexadecimal digits of the
    revision that they were taken from, and the digest of their content, ``sha256:<hex>``."""

    name: str
    revision: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """What went to one allowed host. ``failed``: connections that could not be made."""

    connections: int = 0
    failed: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUse:
    """What went through a unit's proxy; keys are ``host:port``. ``refused`` names the first of
    the targets that were not allowed, ``refused_total`` counts all attempts; ``capped`` tells
    whether the policy's bytes were used up."""

    hosts: Mapping[str, HostUse]
    refused: Mapping[str, int]
    refused_total: int
    capped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPlan:
    """One method with every default filled in.

    It runs ``command`` in ``image``, or it is ``precomputed``: then image is None, command and
    config are empty, and nothing of it is executed here.
    """

    name: str
    method_id: str
    image: ImagePin | None
    command: tuple[str, ...]
    config: Mapping[str, Json]
    limits: Limits
    cache: bool = False
    waive: tuple[str, ...] = ()
    expect: Outcome = Outcome.OK
    precomputed: tuple[ImportedFile, ...] = ()
    network: NetworkPolicy | None = None  # None: no host at all
    secrets: tuple[str, ...] = ()  # names; values are nowhere but in the supervisor
    recordings: tuple[ImportedFile, ...] = ()  # what it replays, one file for each dataset
    models: tuple[ModelPin, ...] = ()  # by name
    requires: tuple[str, ...] = ()  # what may be absent on a host without that being unexpected
    declares: Mapping[str, Json] = field(default_factory=dict)  # mode, backend, exact, ...
    module: str | None = None  # digest of its author's own Python files, seen at /module

    @property
    def pin(self) -> ImagePin:
        """The image of a method that is executed; ``ValueError`` for a precomputed one."""
        if self.image is None:
            raise ValueError(f"{self.name} is precomputed: nothing is executed")
        return self.image

    def imported(self, dataset: str) -> ImportedFile | None:
        """The file that is scored for a dataset; None for a method that is executed."""
        return next((file for file in self.precomputed if file.dataset == dataset), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One container to run: (method, dataset, repeat). ``unit_id`` is the resume key."""

    unit_id: str
    method: str
    method_id: str
    dataset: str
    repeat: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run manifest resolved to; ``run_id = sha256(plan without run_id)``.

    ``overrides`` is what a command line set otherwise than the manifest, by name.
    """

    run_id: str
    name: str
    benchmark_id: str
    protocol_id: str
    splits: tuple[str, ...]
    seed: int
    repeats: int
    jobs: int
    methods: tuple[MethodPlan, ...]
    units: tuple[Unit, ...]
    baseline: str | None = None  # name of the method that every other one is compared with
    overrides: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFault:
    """One bad row: 1-based line number in the method's own file, code and message."""

    line: int
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsReport:
    """What the harvest found in a method's rows; not ``whole`` where there were so many faults
    that the rest was not read: ``fault_count`` is then what was found until there."""

    expected: int
    valid: int
    missing: int
    errors: int  # valid rows whose own `error` is set
    faults: tuple[RowFault, ...] = ()  # the first 100
    fault_count: int = 0
    whole: bool = True
    first_error: str | None = None  # the first of these errors, printable and shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was observed about one unit; ``outcome.classify`` decides from it alone.

    ``None`` is "could not be observed"; ``unmeasured`` names the reason per field.
    """

    started: bool = False
    not_started_reason: str | None = None
    exit_code: int | None = None
    signal_sent: str | None = None  # "TERM" or "KILL": the last one that we sent
    deadline_exceeded: bool = False
    cancelled: bool = False
    output_exceeded: str | None = None  # which cap: "output_bytes" | "output_files"
    engine_failure: str | None = None
    oom_events: int | None = None
    engine_oom_flag: bool | None = None
    pids_events: int | None = None
    throttled_periods: int | None = None
    peak_memory_bytes: int | None = None
    rss_peak_bytes: int | None = None
    cpu_ns: int | None = None
    wall_ns: int | None = None
    death_proven: bool = False
    load_start: float | None = None
    load_end: float | None = None
    log_truncated: bool = False
    harvest_refused: tuple[str, ...] = ()  # what did not cross: "rows.jsonl: symlink", ...
    rows: RowsReport | None = None
    cache_before: str | None = None
    cache_after: str | None = None
    warnings: tuple[str, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    imported: str | None = None  # digest of the file that was scored; nothing was executed
    network: NetworkUse | None = None  # None: it had no way out


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOutcome:
    """The record of one planned unit, as it stands in ``outcomes.jsonl``."""

    unit: Unit
    outcome: Outcome
    reason: str
    evidence: Evidence
    started: str | None  # RFC 3339 UTC
    image: ImagePin | None  # None: precomputed
    limits: Limits
