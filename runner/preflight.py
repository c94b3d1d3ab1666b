"""Everything that can be known to be wrong before anything starts: engine, limits, images, disk.

Nothing is created here. What comes back is all that the units need of the host.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runner.engine.api import Engine, EngineInfo, ImageInfo
from runner.engine.images import manifest_digest_of, prove_images
from runner.engine.limits import check_limits
from runner.errors import StorageError, Where
from runner.host import swap_bytes
from runner.model import ImagePin, MethodPlan, Plan
from runner.progress_text import size_text

#: Room for the bundle, its tar and the inputs, beside what the methods may write.
RESERVE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A host that can run the plan. ``not_enforced`` maps method names to waived limits."""

    info: EngineInfo | None  # None where nothing is executed, and no engine was asked
    images: Mapping[ImagePin, ImageInfo]
    not_enforced: Mapping[str, tuple[str, ...]]

    def pin(self, method: MethodPlan) -> ImagePin:
        """The method's pin with both digests filled in, as far as the engine knows them."""
        image = self.images[method.pin]
        return replace(
            method.pin,
            image_id=image.image_id,
            manifest_digest=method.pin.manifest_digest or manifest_digest_of(image),
        )

    def notes(self) -> tuple[str, ...]:
        """What the results must say about waived limits and unpublished images."""
        waived = [
            f"{name}: not enforced on this host, as the manifest allows: {', '.join(limits)}"
            for name, limits in self.not_enforced.items()
            if limits
        ]
        unpublished = sorted({pin.name for pin in self.images if not pin.published})
        built = [f"image {name} is not the published one (built locally)" for name in unpublished]
        return (*waived, *built)


def preflight(
    engine: Engine | None, plan: Plan, out: Path, pins: Mapping[ImagePin, ImagePin] | None = None
) -> Ready:
    """Return what the plan's units need, or raise: ``EngineError``, ``LimitError``,
    ``ImageError``, or ``StorageError`` when the output folder lacks room.

    ``pins`` gives pins to prove in place of some of the plan's: they know more digests. ``engine``
    is None where every method is precomputed.
    """
    check_disk(out, plan.methods, plan.jobs)
    if engine is None:
        return Ready(info=None, images={}, not_enforced={})
    info = engine.info()
    swap = swap_bytes()
    not_enforced = {
        method.name: check_limits(info, method.limits, method.waive, swap_bytes=swap)
        for method in plan.methods
        if method.image is not None
    }
    platform = f"{info.os}/{info.architecture}"
    needed = [method.image for method in plan.methods if method.image is not None]
    wanted = {pin: (pins or {}).get(pin, pin) for pin in needed}
    proven = prove_images(engine, wanted.values(), platform)
    images = {pin: proven[asked] for pin, asked in wanted.items()}
    return Ready(info=info, images=images, not_enforced=not_enforced)


def check_disk(out: Path, methods: Iterable[MethodPlan], jobs: int) -> None:
    """Raise ``StorageError`` when the methods could fill the file system of ``out``.

    The largest ``jobs`` methods may write their caps at the same time; rows are copied once.
    """
    caps = sorted((method.limits.output_bytes for method in methods), reverse=True)
    needed = 2 * sum(caps[:jobs]) + RESERVE_BYTES
    place = out
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise StorageError(
            "storage.no-room",
            f"{size_text(free)} are free, and this run may need {size_text(needed)}",
            fix="free some space, choose another --out, or lower limits.output",
            where=Where(file=str(out)),
        )
