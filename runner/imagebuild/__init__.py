"""Build the repository's images without a builder: deterministic layers, one archive, one load."""

from runner.imagebuild.build import (
    BuildEvent,
    BuildReport,
    BuiltImage,
    build,
    host_image_platform,
)
from runner.imagebuild.listing import ListedImage, list_images
from runner.imagebuild.lock import lock_update
from runner.imagebuild.locks import Difference

__all__ = [
    "BuildEvent",
    "BuildReport",
    "BuiltImage",
    "Difference",
    "ListedImage",
    "build",
    "host_image_platform",
    "list_images",
    "lock_update",
]
