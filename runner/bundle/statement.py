"""What a receipt claims: an in-toto Statement v1 about manifest.json, predicate SLSA Provenance v1.

``RunClaims`` is everything that the signature binds besides the manifest's bytes. Parsing is exact:
a statement is accepted only if building it again from the claims gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from runner.bundle.documents import parse_canonical, parse_utc
from runner.bundle.paths import MANIFEST, RECEIPT
from runner.canonical import canonical_bytes
from runner.errors import BundleError, Where
from runner.model import ImagePin, Limits, Plan

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://sealbench.invalid/run/v1"
BUILDER_ID = "https://sealbench.invalid/runner/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodClaim:
    """One method: ``image`` is the digest of an entry of ``RunClaims.images``; None of one that was
    not executed."""

    name: str
    method_id: str
    image: str | None
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageClaim:
    """One image; ``digest`` is ``sha256:<hex>``, the digest that goes into method ids."""

    name: str
    digest: str
    platform: str
    published: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClaims:
    """What a signature binds. All digests are ``sha256:<hex>``; times RFC 3339 in UTC.

    ``datasets`` maps names to fingerprints, ``imports`` maps ``method/dataset`` to the digest of
    the file that was scored, ``schemas`` maps kinds to digests of the copies in the bundle. None is
    "not known" (source outside a repository) or "not there" (engine, challenge).
    """

    benchmark_id: str
    benchmark_version: str
    protocol_id: str
    run_id: str
    splits: tuple[str, ...]
    seeds: tuple[int, ...]
    repeats: int
    methods: tuple[MethodClaim, ...]
    images: tuple[ImageClaim, ...]
    datasets: Mapping[str, str]
    imports: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    source_commit: str | None
    source_dirty: bool | None
    runner_version: str
    engine_version: str | None  # such as "docker 20.10.24"
    runtime_version: str | None = None  # such as "runc 1.1.5"
    started: str
    finished: str
    challenge: str | None = None


def plan_claims(plan: Plan) -> dict[str, Any]:
    """Return those fields of ``RunClaims`` that a plan decides, as keyword arguments."""
    executed = [method.image for method in plan.methods if method.image is not None]
    pins = {pin.digest: pin for pin in executed}
    return {
        "benchmark_id": plan.benchmark_id,
        "protocol_id": plan.protocol_id,
        "run_id": plan.run_id,
        "splits": plan.splits,
        "seeds": tuple(sorted({unit.seed for unit in plan.units})),
        "repeats": plan.repeats,
        "methods": tuple(
            MethodClaim(
                name=method.name,
                method_id=method.method_id,
                image=None if method.image is None else method.image.digest,
                limits=method.limits,
            )
            for method in plan.methods
        ),
        "images": tuple(_image_claim(pin) for pin in pins.values()),
        "imports": {
            f"{method.name}/{file.dataset}": file.sha256
            for method in plan.methods
            for file in method.precomputed
        },
    }


def _image_claim(pin: ImagePin) -> ImageClaim:
    return ImageClaim(
        name=pin.name, digest=pin.digest, platform=pin.platform, published=pin.published
    )


def build_statement(manifest_sha256: str, claims: RunClaims) -> bytes:
    """Return the canonical statement about a manifest (hex digest); ``BundleError`` if the claims
    do not fit the receipt's schema or contradict each other.
    """
    data = _statement_bytes(manifest_sha256, claims)
    parse_canonical(data, kind="receipt", file=RECEIPT)
    _check_claims(claims)
    return data


def parse_statement(payload: bytes, *, file: str = RECEIPT) -> tuple[str, RunClaims]:
    """Return (hex SHA-256 of manifest.json, claims) of a *verified* payload, or refuse it."""
    document = parse_canonical(payload, kind="receipt", file=file)
    subject = document["subject"][0]["digest"]["sha256"]
    claims = _claims(document["predicate"])
    _check_claims(claims)
    if _statement_bytes(subject, claims) != payload:
        _refuse("receipt.form", "the dependencies are incomplete, repeated or out of order")
    return subject, claims


def _statement_bytes(manifest_sha256: str, claims: RunClaims) -> bytes:
    return canonical_bytes(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": MANIFEST, "digest": {"sha256": manifest_sha256}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "buildDefinition": _build_definition(claims),
                "runDetails": {
                    "builder": {"id": BUILDER_ID, "version": _versions(claims)},
                    "metadata": {
                        "invocationId": claims.run_id,
                        "startedOn": claims.started,
                        "finishedOn": claims.finished,
                    },
                },
            },
        }
    )


def _build_definition(claims: RunClaims) -> dict[str, object]:
    external: dict[str, object] = {
        "benchmark": {"id": claims.benchmark_id, "version": claims.benchmark_version},
        "protocol_id": claims.protocol_id,
        "splits": list(claims.splits),
        "seeds": list(claims.seeds),
        "repeats": claims.repeats,
        "methods": [
            {
                "name": method.name,
                "method_id": method.method_id,
                **({"executed": False} if method.image is None else {"image": method.image}),
                "limits": asdict(method.limits),
            }
            for method in claims.methods
        ],
    }
    if claims.challenge is not None:
        external["challenge"] = claims.challenge
    source = {"commit": claims.source_commit, "dirty": claims.source_dirty}
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": external,
        "internalParameters": {"source": source},
        "resolvedDependencies": list(_dependencies(claims)),
    }


def _dependencies(claims: RunClaims) -> Iterable[dict[str, object]]:
    yield _dependency("protocol", claims.protocol_id)
    for name, digest in sorted(claims.datasets.items()):
        yield _dependency(f"dataset/{name}", digest)
    for image in sorted(claims.images, key=lambda image: (image.name, image.digest)):
        annotations = {"platform": image.platform, "published": image.published}
        yield _dependency(f"image/{image.name}", image.digest) | {"annotations": annotations}
    for name, digest in sorted(claims.imports.items()):
        yield _dependency(f"import/{name}", digest)
    for kind, digest in sorted(claims.schemas.items()):
        yield _dependency(f"schema/{kind}", digest)


def _dependency(name: str, digest: str) -> dict[str, object]:
    return {"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}


def _versions(claims: RunClaims) -> dict[str, object]:
    versions = {
        "sealbench": claims.runner_version,
        "engine": claims.engine_version,
        "runtime": claims.runtime_version,
    }
    return {name: version for name, version in versions.items() if version is not None}


def _claims(predicate: dict[str, Any]) -> RunClaims:
    """Read the claims of a predicate that fits the schema; what is extra shows on rebuilding."""
    build, run = predicate["buildDefinition"], predicate["runDetails"]
    external, source = build["externalParameters"], build["internalParameters"]["source"]
    versions, dependencies = run["builder"]["version"], build["resolvedDependencies"]

    def digests(kind: str) -> dict[str, str]:
        found = (item for item in dependencies if item["name"].startswith(f"{kind}/"))
        return {item["name"].partition("/")[2]: _label(item) for item in found}

    return RunClaims(
        benchmark_id=external["benchmark"]["id"],
        benchmark_version=external["benchmark"]["version"],
        protocol_id=external["protocol_id"],
        run_id=run["metadata"]["invocationId"],
        splits=tuple(external["splits"]),
        seeds=tuple(external["seeds"]),
        repeats=external["repeats"],
        methods=tuple(
            MethodClaim(
                name=item["name"],
                method_id=item["method_id"],
                image=item.get("image"),
                limits=Limits(**item["limits"]),
            )
            for item in external["methods"]
        ),
        images=tuple(
            ImageClaim(
                name=item["name"].partition("/")[2], digest=_label(item), **item["annotations"]
            )
            for item in dependencies
            if item["name"].startswith("image/") and "annotations" in item
        ),
        datasets=digests("dataset"),
        imports=digests("import"),
        schemas=digests("schema"),
        source_commit=source["commit"],
        source_dirty=source["dirty"],
        runner_version=versions["sealbench"],
        engine_version=versions.get("engine"),
        runtime_version=versions.get("runtime"),
        started=run["metadata"]["startedOn"],
        finished=run["metadata"]["finishedOn"],
        challenge=external.get("challenge"),
    )


def _label(item: dict[str, Any]) -> str:
    return f"sha256:{item['digest']['sha256']}"


def _check_claims(claims: RunClaims) -> None:
    """Refuse claims that contradict each other, which no schema sees."""
    started, finished = parse_utc(claims.started), parse_utc(claims.finished)
    if started is None or finished is None:
        _refuse("receipt.time", "started or finished is no such time in UTC")
    if started > finished:
        _refuse("receipt.time", f"it finished ({claims.finished}) before it started")
    images = [image.digest for image in claims.images]
    for what, names in (
        ("method", [method.name for method in claims.methods]),
        ("image", images),
        ("seed", list(claims.seeds)),
        ("split", list(claims.splits)),
    ):
        if len(set(names)) != len(names):
            _refuse("receipt.duplicate", f"a {what} is named twice")
    used = {method.image for method in claims.methods} - {None}
    if used != set(images):
        _refuse("receipt.images", "the images bound are not those that the methods use")


def _refuse(code: str, message: str) -> NoReturn:
    raise BundleError(
        code,
        message,
        fix="ask the runner's author for a receipt that can be read one way only",
        where=Where(file=RECEIPT),
    )
