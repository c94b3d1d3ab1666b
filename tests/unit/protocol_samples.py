"""Freeze manifests over the small collections of ``beir_files``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.canonical import canonical_bytes
from runner.manifest import FreezeDataset, FreezeManifest
from runner.model import Limits
from runner.protocol.freeze import freeze
from runner.protocol.load import Protocol, parse_protocol
from tests.unit.beir_files import write_beir

DATASET = FreezeDataset(
    name="toy",
    task="retrieval",
    format="beir",
    options={"qrels": "test", "expect": {"documents": 4, "queries": 3}},
    files={},
    source_url="https://example.org/toy",
    source_revision="own:1.0.0",
    licence="CC0-1.0",
    citation="Nobody, 2024.",
    redistribution="free",
    selection="All judged queries.",
)
MANIFEST = FreezeManifest(
    path=Path("toy-v1.yaml"),
    raw=b"",
    benchmark="toy-v1",
    version="1.0.0",
    title="Toy",
    description="A toy.",
    category="retrieval",
    seed=0,
    metrics=("ndcg_at_10", "recall_at_1", "mrr"),
    primary_metric="ndcg_at_10",
    top_k=10,
    calibration=1,
    split_algorithm="sha256-id-order",
    rules={"queries_without_positives": "count_as_zero"},
    budget=Limits(),
    datasets=(DATASET,),
)


def manifest_with(**changes: Any) -> FreezeManifest:
    """A manifest with other members; members of the dataset are given as ``dataset_...``, keys of
    its options as ``option_...``, rules as ``rule_...``."""
    prefix = "dataset_"
    inner = {k.removeprefix(prefix): v for k, v in changes.items() if k.startswith(prefix)}
    outer = {k: v for k, v in changes.items() if not k.startswith((prefix, "option_", "rule_"))}
    options = {k.removeprefix("option_"): v for k, v in changes.items() if k.startswith("option_")}
    rules = {k.removeprefix("rule_"): v for k, v in changes.items() if k.startswith("rule_")}
    if options:
        inner["options"] = {**DATASET.options, **options}
    if rules:
        outer["rules"] = {**MANIFEST.rules, **rules}
    if inner:
        outer["datasets"] = (replace(DATASET, **inner),)
    return replace(MANIFEST, **outer)


def frozen(data_root: Path, **changes: Any) -> Protocol:
    """The checked protocol of a manifest over ``data_root``, written there first if absent."""
    if not (data_root / "toy").exists():
        write_beir(data_root / "toy")
    document, _ = freeze(manifest_with(**changes), data_root)
    return parse_protocol(canonical_bytes(document), Path("toy-v1.protocol.json"))
