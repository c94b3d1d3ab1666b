"""Images into the engine: from an archive, or from a registry by digest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO

from runner.engine.facts import image_info

if TYPE_CHECKING:
    from docker import APIClient

_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")


def load(client: APIClient, archive: BinaryIO) -> tuple[list[str], str | None]:
    """(image ids that the archive brought, what went wrong)."""
    from docker.errors import APIError

    ids: list[str] = []
    names: list[str] = []
    try:
        for event in client.load_image(archive):
            if problem := event.get("error"):
                return ids, str(problem)
            head, _, what = str(event.get("stream", "")).strip().partition(": ")
            if head in ("Loaded image", "Loaded image ID"):  # Podman says the former of ids too
                (ids if _IMAGE_ID.fullmatch(what) else names).append(what)
        if names:
            ids += _ids_of(client.images(all=False), names)
    except APIError as error:
        return ids, str(error.explanation or error)
    return ids, None


def pull(client: APIClient, repository: str, manifest_digest: str) -> str | None:
    """Pull without credentials; return what went wrong."""
    from docker.errors import APIError

    try:
        # An empty auth_config sends no credentials; the SDK's "tag" may be a digest.
        events = client.pull(
            repository, tag=manifest_digest, stream=True, decode=True, auth_config={}
        )
        for event in events:
            if problem := event.get("error"):
                return str(problem)
    except APIError as error:
        return str(error.explanation or error)
    return None


def _ids_of(listing: list[dict[str, Any]], names: list[str]) -> list[str]:
    """Ids of loaded names, looked up here, so that no tag is asked for."""
    wanted = set(names)
    return [
        image_info({"Id": item["Id"]}).image_id
        for item in listing
        if wanted & {*(item.get("RepoTags") or ()), *(item.get("RepoDigests") or ())}
    ]
