"""YAML text of a manifest -> frozen dataclasses, with every mistake named by file, line, column.

Two kinds: a *run* manifest (methods against a frozen protocol) and a *freeze* manifest (what a
maintainer freezes into a protocol). Nothing here touches an engine, the data or the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.access_read import read_models, read_module_path, read_network, read_secrets
from runner.canonical import Json
from runner.errors import DataError, ManifestError, ProtocolError
from runner.manifest_matrix import expand
from runner.manifest_read import (
    Checked,
    Faults,
    check_manifest_bytes,
    in_file_order,
    raise_first,
    read_manifest,
)
from runner.model import Limits, ModelPin, NetworkPolicy, Outcome, Plan
from runner.protocol.policies import check_revision
from runner.schema_faults import suggest
from runner.secret_refs import SecretRef
from runner.yamlstrict import Places

#: Stands for the data root at the beginning of a path of results.
DATA_ROOT = "{data_root}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePin:
    """What a precomputed file must be: its digest and size, known without the file."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSpec:
    """One method as the manifest states it, nothing resolved yet.

    It has ``image`` or ``precomputed``: the path of results made elsewhere, in which ``{dataset}``
    stands for a dataset's name (see ``imported_path``). ``limits`` maps field names of
    ``model.Limits`` (``wall_ms``, ``memory_bytes``, ...) to values and holds only what the manifest
    sets. ``command`` is None when the image's declared method gives it.
    """

    name: str
    image: str | None
    precomputed: Path | None
    method: str | None
    command: tuple[str, ...] | None
    config: Mapping[str, Json]
    limits: Mapping[str, int]
    cache: bool | None  # None: as the image declares, else false
    waive: tuple[str, ...]
    expect: Outcome
    network: NetworkPolicy | None = None
    secrets: tuple[SecretRef, ...] = ()
    recordings: Path | None = None  # a path like ``precomputed``
    models: tuple[ModelPin, ...] = ()
    requires: tuple[str, ...] = ()
    module: Path | None = None  # of the author's own Python, below the manifest's folder
    entry: int = 0  # its place in the file's list: a matrix makes several methods of one entry
    pin: FilePin | None = None

    def imported_path(self, dataset: str, data_root: Path | None = None) -> Path:
        """The file of results for a dataset; ``ValueError`` for a method that is executed.

        ``DataError`` where it lies below the data root and there is none.
        """
        if self.precomputed is None:
            raise ValueError(f"{self.name} is not precomputed")
        path = Path(str(self.precomputed).replace("{dataset}", dataset))
        if path.parts[0] != DATA_ROOT:
            return path
        if data_root is None:
            raise DataError(
                "data.no-root",
                f"the results of {self.name} lie below the data root, and there is none",
                fix="pass --data-root DIR (make: DATA_ROOT=DIR), or set data_root in the manifest",
            )
        return data_root.joinpath(*path.parts[1:])

    def recording_path(self, dataset: str) -> Path:
        """The file that is replayed for a dataset; ``ValueError`` for a method without."""
        if self.recordings is None:
            raise ValueError(f"{self.name} replays nothing")
        return Path(str(self.recordings).replace("{dataset}", dataset))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """A run manifest; ``raw`` is the file byte for byte, relative paths are already resolved."""

    path: Path
    raw: bytes = field(repr=False)
    name: str
    protocol: Path
    protocol_id: str | None
    data_root: Path | None
    models_root: Path | None
    splits: tuple[str, ...]
    tuned: bool  # chosen on data: the held-out split then needs a configuration freeze
    config_freeze: Path | None
    seed: int | None  # None: the protocol's
    repeats: int
    jobs: int
    limits: Mapping[str, int]  # as in MethodSpec
    waive: tuple[str, ...]
    methods: tuple[MethodSpec, ...]
    baseline: str | None = None  # the method that every other one is compared with
    # Line and column of every value; places that nobody knows where a manifest is made in code.
    places: Places = field(repr=False, compare=False, default_factory=lambda: Places("manifest"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeDataset:
    """One dataset of a benchmark as its maintainer declares it.

    ``files`` maps file names within the dataset's folder to the SHA-256 (plain hex) that they must
    have; it may be empty. ``options`` are the task's own keys, such as ``qrels`` and ``expect``.
    """

    name: str
    task: str
    format: str
    options: Mapping[str, Json]
    files: Mapping[str, str]
    source_url: str
    source_revision: str
    licence: str
    citation: str
    redistribution: str
    selection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeManifest:
    """What a maintainer freezes; ``calibration`` is None when the benchmark has only ``all``."""

    path: Path
    raw: bytes = field(repr=False)
    benchmark: str
    version: str
    title: str
    description: str
    category: str
    seed: int
    metrics: tuple[str, ...]
    primary_metric: str
    top_k: int
    calibration: int | None
    split_algorithm: str | None
    rules: Mapping[str, Json]  # the category's own, such as queries_without_positives
    budget: Limits
    datasets: tuple[FreezeDataset, ...]
    tolerances: Mapping[str, Json] | None = None  # see ``compare.Tolerances``
    places: Places = field(repr=False, compare=False, default_factory=lambda: Places("manifest"))


def load_run_manifest(path: Path) -> RunManifest:
    """Read a run manifest; raise ``ManifestError`` for the first of its faults."""
    manifest, faults = lint_run_manifest(path)
    if manifest is None or faults:
        raise_first(faults)
    return manifest


def load_freeze_manifest(path: Path) -> FreezeManifest:
    """Read a freeze manifest; raise ``ManifestError`` for the first of its faults."""
    manifest, faults = lint_freeze_manifest(path)
    if manifest is None or faults:
        raise_first(faults)
    return manifest


def lint_run_manifest(path: Path) -> tuple[RunManifest | None, tuple[ManifestError, ...]]:
    """Return a run manifest and all of its faults; None where the faults leave nothing to use."""
    try:
        return _run_manifest(read_manifest(path, "run"))
    except ManifestError as error:
        return None, (error,)


def parse_run_manifest(raw: bytes, path: Path) -> RunManifest:
    """Return the run manifest in these bytes; ``path`` names them and is not opened."""
    manifest, faults = _run_manifest(check_manifest_bytes(raw, path, "run"))
    if manifest is None or faults:
        raise_first(faults)
    return manifest


def imported_paths(
    manifest: RunManifest, plan: Plan, data_root: Path | None
) -> dict[tuple[str, str], Path]:
    """Return the file of results of every precomputed method of a plan, for each dataset."""
    specs = {spec.name: spec for spec in manifest.methods}
    return {
        (method.name, file.dataset): specs[method.name].imported_path(file.dataset, data_root)
        for method in plan.methods
        for file in method.precomputed
    }


def _run_manifest(checked: Checked) -> tuple[RunManifest | None, tuple[ManifestError, ...]]:
    if checked.faults:
        return None, in_file_order(checked.faults)
    path, data, faults = checked.path, checked.data, Faults(checked.places)
    base = path.parent
    data_root, models_root = data.get("data_root"), data.get("models_root")
    config_freeze = data.get("config_freeze")
    splits = list(data["splits"])
    faults.unique("split", splits, "splits")
    methods = tuple(
        _method(entry, index, base, faults) for index, entry in expand(data["methods"], faults)
    )
    _unique_names("method", [(one.entry, one.name) for one in methods], "methods", faults)
    baseline, names = data.get("baseline"), [one.name for one in methods]
    if baseline is not None and baseline not in names:
        message = f"baseline {baseline!r} is no method of this run{suggest(baseline, names)}"
        fix = "name a method as it is called after matrix: has made its names"
        faults.add("baseline", message, fix, "baseline")
    manifest = RunManifest(
        path=path,
        raw=checked.raw,
        name=data["name"],
        protocol=faults.relative_path(data["protocol"], base, "protocol"),
        protocol_id=data.get("protocol_id"),
        data_root=data_root and faults.relative_path(data_root, base, "data_root"),
        models_root=models_root and faults.relative_path(models_root, base, "models_root"),
        splits=tuple(splits),
        tuned=data.get("tuned", False),
        config_freeze=config_freeze and faults.relative_path(config_freeze, base, "config_freeze"),
        seed=data.get("seed"),
        repeats=data.get("repeats", 1),
        jobs=data.get("jobs", 1),
        limits=faults.limits(data.get("limits", {}), "limits"),
        waive=tuple(data.get("waive", ())),
        methods=methods,
        baseline=baseline,
        places=checked.places,
    )
    return manifest, faults.in_file_order()


def _method(entry: Mapping[str, Any], index: int, base: Path, faults: Faults) -> MethodSpec:
    command, precomputed = entry.get("command"), entry.get("precomputed")
    recordings = entry.get("recordings")
    place = ("methods", index)
    for key in _OF_EXECUTION & entry.keys() if precomputed is not None else ():
        message = f"{key} is for what is executed, and {entry['name']!r} is precomputed"
        faults.add("precomputed", message, f"remove {key}, or precomputed", *place, key)
    if "pin" in entry and precomputed is None:
        message = f"pin is for a precomputed file, and {entry['name']!r} is executed"
        faults.add("precomputed", message, "remove pin", *place, "pin")
    return MethodSpec(
        name=entry["name"],
        image=entry.get("image"),
        precomputed=precomputed and _results_path(precomputed, base, faults, place),
        method=entry.get("method"),
        command=None if command is None else tuple(command),
        config=dict(entry.get("config", {})),
        limits=faults.limits(entry.get("limits", {}), "methods", index, "limits"),
        cache=entry.get("cache"),
        waive=tuple(entry.get("waive", ())),
        expect=Outcome(entry.get("expect", Outcome.OK)),
        network=read_network(entry, faults, *place),
        secrets=read_secrets(entry, base, faults, *place),
        recordings=recordings and faults.relative_path(recordings, base, *place, "recordings"),
        models=read_models(entry, faults, *place),
        requires=tuple(entry.get("requires", ())),
        module=read_module_path(entry, base, faults, *place),
        entry=index,
        pin=None if "pin" not in entry else FilePin(**entry["pin"]),
    )


def _results_path(text: str, base: Path, faults: Faults, place: tuple[str, int]) -> Path:
    """Return the path of results; below ``{data_root}`` it is completed when the run knows it."""
    path = faults.relative_path(text, base, *place, "precomputed")
    return Path(text) if text.startswith(f"{DATA_ROOT}/") else path


#: What a precomputed method cannot have.
_OF_EXECUTION = frozenset({"image", "method", "command", "config", "limits", "cache", "waive"}) | {
    "network",
    "secrets",
    "recordings",
    "models",
    "requires",
    "module",
    "matrix",
}


def lint_freeze_manifest(path: Path) -> tuple[FreezeManifest | None, tuple[ManifestError, ...]]:
    """Return a freeze manifest and all of its faults; None where nothing is left to use."""
    try:
        checked = read_manifest(path, "freeze")
    except ManifestError as error:
        return None, (error,)
    if checked.faults:
        return None, in_file_order(checked.faults)
    data, faults = checked.data, Faults(checked.places)
    metrics = list(data["metrics"])
    faults.unique("metric", metrics, "metrics")
    if data["primary_metric"] not in metrics:
        message = f"primary_metric {data['primary_metric']} is not among the metrics"
        hint = suggest(data["primary_metric"], metrics)
        faults.add("primary-metric", message + hint, "add it to metrics", "primary_metric")
    datasets = tuple(_dataset(entry, at, faults) for at, entry in enumerate(data["datasets"]))
    names = [dataset.name for dataset in datasets]
    _unique_names("dataset", list(enumerate(names)), "datasets", faults)
    splits = data.get("splits", {})
    calibration = splits.get("calibration")
    for dataset in datasets:
        expect = dataset.options.get("expect")
        queries = expect.get("queries") if isinstance(expect, dict) else None
        if calibration and isinstance(queries, int) and calibration >= queries:
            message = f"calibration takes all {queries} queries of {dataset.name}"
            fix = "leave at least one query held out"
            faults.add("calibration", message, fix, "splits", "calibration")
    budget = faults.limits(data.get("budget", {}), "budget")
    manifest = FreezeManifest(
        path=path,
        raw=checked.raw,
        **{key: data[key] for key in _COPIED},
        metrics=tuple(metrics),
        seed=data.get("seed", 0),
        calibration=calibration,
        split_algorithm=splits.get("algorithm"),
        rules=dict(data["rules"]),
        budget=Limits(**budget),
        datasets=datasets,
        tolerances=_tolerances(data, metrics, faults),
        places=checked.places,
    )
    return manifest, faults.in_file_order()


def _tolerances(
    data: Mapping[str, Any], metrics: list[str], faults: Faults
) -> Mapping[str, Json] | None:
    found: Mapping[str, Any] | None = data.get("tolerances")
    for name in found.get("metrics", {}) if found else ():
        if name not in metrics:
            message = f"a tolerance for {name}, which is not among the metrics"
            path = ("tolerances", "metrics", name)
            faults.add("tolerance", message + suggest(name, metrics), "remove it", *path)
    return found


_COPIED = (
    "benchmark",
    "version",
    "title",
    "description",
    "category",
    "primary_metric",
    "top_k",
)


_DECLARED = (
    "name", "task", "format", "source_url", "source_revision", "licence", "citation",
    "redistribution", "selection",
)  # fmt: skip


def _dataset(entry: Mapping[str, Any], index: int, faults: Faults) -> FreezeDataset:
    try:
        check_revision(entry["source_revision"], entry["name"])
    except ProtocolError as error:
        path = ("datasets", index, "source_revision")
        faults.add("mutable-revision", error.message, error.fix, *path)
    return FreezeDataset(
        **{key: entry[key] for key in _DECLARED},
        files=dict(entry.get("files", {})),
        options={key: entry[key] for key in entry if key not in (*_DECLARED, "files")},
    )


def _unique_names(what: str, names: list[tuple[int, str]], key: str, faults: Faults) -> None:
    first: dict[str, int] = {}
    for index, name in names:
        if name in first:
            message = f"two {what}s are named {name!r}: {key}[{first[name]}] and {key}[{index}]"
            faults.add(f"duplicate-{what}", message, "rename one of them", key, index, "name")
        first.setdefault(name, index)
