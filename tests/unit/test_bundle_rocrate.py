"""The RO-Crate description: the reference library reads it and finds every file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rocrate.rocrate import ROCrate

from runner.bundle.rocrate import PROFILE
from tests.unit.bundle_files import INFO, KEY, claims, files_of, seal


@pytest.mark.parametrize("signed", [True, False])
def test_rocrate_reads_it(tmp_path: Path, signed: bool) -> None:
    bundle = seal(tmp_path, key=KEY if signed else None).path
    crate = ROCrate(str(bundle))
    assert crate.root_dataset["conformsTo"].id == PROFILE
    assert crate.name == INFO.name
    files = {entity.id for entity in crate.data_entities}
    assert files == set(files_of(bundle)) - {"ro-crate-metadata.json"}
    action = crate.get("#run")
    assert action.type == "CreateAction"
    assert action["instrument"]["softwareVersion"] == claims().runner_version
    assert {item.id for item in action["object"]} == {"run.yaml", "plan.json", "protocol.json"}
    assert {item.id for item in action["result"]} >= {"results.json", "outcomes.jsonl"}
    assert (action["startTime"], action["endTime"]) == (claims().started, claims().finished)


def entities(bundle: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((bundle / "ro-crate-metadata.json").read_bytes())
    found = {item["@id"]: item for item in document["@graph"]}
    assert len(found) == len(document["@graph"])
    return found


def test_every_reference_leads_somewhere(tmp_path: Path) -> None:
    found = entities(seal(tmp_path).path)

    def references(value: object) -> list[str]:
        if isinstance(value, list):
            return [one for item in value for one in references(item)]
        if isinstance(value, dict):
            return [value["@id"]]
        return []

    for item in found.values():
        for value in item.values():
            assert set(references(value)) <= found.keys() | {"https://w3id.org/ro/crate/1.1"}


def test_it_names_no_person_and_no_digest_that_it_cannot_know(tmp_path: Path) -> None:
    found = entities(seal(tmp_path).path)
    assert not {"Person", "Organization"} & {str(item["@type"]) for item in found.values()}
    assert "sha256" not in found["manifest.json"]
    assert found["results.json"]["sha256"]
