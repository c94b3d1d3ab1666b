"""The container engine over its HTTP API, by container id, for Docker and Podman.

Never the command line: an application's exit 125 or 127 would look like the engine's own, and
killing the client leaves the container running. Every call may be made from any thread; each takes
an idle connection or makes one, so that a blocked ``wait`` never holds up a ``kill``.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from runner.engine.api import (
    ContainerSpec,
    ContainerState,
    ContainerSummary,
    EngineInfo,
    ImageInfo,
    LogStream,
)
from runner.engine.create import container_body
from runner.engine.discover import find_host
from runner.engine.facts import engine_info, image_info, is_podman
from runner.engine.logs import AttachedLogs
from runner.engine.transfer import load, pull
from runner.errors import EngineError, ImageError

if TYPE_CHECKING:
    from docker import APIClient

#: An engine that does not answer an ordinary call for this long is taken for lost.
CALL_TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 10.0
REMOVE_TIMEOUT_S = 60.0
#: Loading and pulling report progress; silence for this long is taken for loss.
TRANSFER_TIMEOUT_S = 600.0
_MIN_API = (1, 40)
_MAX_API = (1, 47)  # newer engines still speak it; what changes later is not tested here
_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")
_BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")


class DockerEngine:
    """Implements ``api.Engine``. ``host`` is ``unix://...`` or ``tcp://...``; None looks for one.

    Raises ``EngineError`` when nothing answers there.
    """

    def __init__(self, host: str | None = None) -> None:
        self._host = host or find_host()
        self._idle: deque[APIClient] = deque()
        self._lock = threading.Lock()
        self._closed = False
        with _translated("reach the engine"):
            self._api_version, self._podman = _negotiate(self._host)

    @property
    def host(self) -> str:
        """The address of the engine; never recorded."""
        return self._host

    def info(self) -> EngineInfo:
        with self._client("ask for the engine's facts") as client:
            return engine_info(client.version(), client.info())

    def inspect_image(self, reference: str) -> ImageInfo | None:
        if not (_IMAGE_ID.fullmatch(reference) or is_pinned(reference)):
            raise ImageError(
                "image.not-pinned",
                f"{reference!r} is not a digest",
                fix="pin the image as name@sha256:<manifest digest> or sha256:<image id>",
            )
        with self._client("inspect an image") as client:
            answer = _or_none(client.inspect_image, reference)
        return None if answer is None else image_info(answer)

    def load_image(self, archive: BinaryIO) -> tuple[str, ...]:
        with self._client("load an image", TRANSFER_TIMEOUT_S) as client:
            ids, problem = load(client, archive)
        if problem or not ids:
            raise ImageError(
                "image.load-failed",
                f"the engine refused the image archive: {problem or 'it holds no image'}",
                fix="build the archive again with `sealbench images build`",
            )
        return tuple(dict.fromkeys(ids))

    def save_image(self, image_id: str) -> Iterator[bytes]:
        with self._client("save an image", TRANSFER_TIMEOUT_S) as client:
            yield from client.get_image(image_id, chunk_size=1 << 20)

    def pull_image(self, repository: str, manifest_digest: str) -> ImageInfo:
        reference = f"{repository}@{manifest_digest}"
        if not is_pinned(reference):
            raise ImageError(
                "image.not-pinned",
                f"{reference!r} is not a digest",
                fix="pin the image as name@sha256:<manifest digest>",
            )
        with self._client("pull an image", TRANSFER_TIMEOUT_S) as client:
            problem = pull(client, repository, manifest_digest)
        found = None if problem else self.inspect_image(reference)
        if found is None:
            raise ImageError(
                "image.pull-failed",
                f"{reference} could not be pulled: {problem or 'it is not there afterwards'}",
                fix="check network and digest, or build the image: `sealbench images build`",
            )
        return found

    def create(self, spec: ContainerSpec) -> str:
        if not _IMAGE_ID.fullmatch(spec.image_id):
            raise EngineError(
                "engine.not-an-id",
                f"{spec.image_id!r} is not an image id",
                fix="resolve the image with prove_images before creating a container",
            )
        for mount in spec.mounts:
            # Podman makes a missing source, owned by root, where Docker refuses.
            if not mount.source.exists():
                raise EngineError(
                    "engine.refused",
                    f"cannot create a container: there is nothing to mount at {mount.target}",
                    fix=f"create {mount.source} first",
                )
        image = self.inspect_image(spec.image_id)
        with self._client("create a container") as client:
            volumes = () if image is None else image.volumes  # absent: the engine says so
            body = container_body(spec, podman=self._podman, volumes=volumes)
            answer = client.create_container_from_config(body, spec.name)
        return str(answer["Id"])

    def attach(self, container_id: str) -> LogStream:
        params = {"stream": 1, "stdout": 1, "stderr": 1, "stdin": 0, "logs": 0}
        with self._client("attach to a container") as client:
            raw = client.attach_socket(container_id, params)
            try:
                return AttachedLogs(raw.fileno())
            finally:
                # The stream has a descriptor of its own; the client's end must not stay open.
                raw._response.close()

    def start(self, container_id: str) -> None:
        with self._client("start a container") as client:
            client.start(container_id)

    def wait(self, container_id: str, timeout_s: float) -> int | None:
        """See ``api.Engine``. A timeout costs a connection: prefer one long wait in a thread of
        its own to many short ones."""
        from requests.exceptions import ConnectionError as Lost
        from requests.exceptions import Timeout

        if timeout_s <= 0:
            found = self.state(container_id)
            over = found is not None and found.status in ("exited", "dead")
            return found.exit_code if over and found is not None else None
        limits = (CONNECT_TIMEOUT_S, timeout_s)
        with self._client("wait for a container") as client:
            try:
                answer = client.wait(container_id, timeout=limits, condition="not-running")
            except Timeout:
                return None
            except Lost as error:
                # The engine sends the head at once and the body at the end: a time-out in the
                # body comes as a "connection error" with the time-out inside.
                if _is_read_timeout(error):
                    return None
                raise
        return int(answer["StatusCode"])

    def state(self, container_id: str) -> ContainerState | None:
        with self._client("inspect a container") as client:
            answer = _or_none(client.inspect_container, container_id)
        if answer is None:
            return None
        state = answer.get("State") or {}
        over = str(state.get("Status")) in ("exited", "dead")
        image = str(answer.get("Image") or "")
        return ContainerState(
            status=str(state.get("Status") or "unknown"),
            exit_code=int(state["ExitCode"]) if over and "ExitCode" in state else None,
            oom_flag=bool(state.get("OOMKilled")),
            error=str(state.get("Error") or ""),
            pid=int(state.get("Pid") or 0) or None,
            image_id=image if ":" in image else f"sha256:{image}",
        )

    def kill(self, container_id: str, signal: str) -> None:
        from docker.errors import APIError

        with self._client("kill a container") as client:
            try:
                client.kill(container_id, signal=f"SIG{signal}")
            except APIError as error:
                # 404: gone; 409, or 500 with such words (Podman, older Docker): not running.
                words = str(error.explanation)
                over = "not running" in words or "only kill running" in words
                if error.status_code not in (404, 409) and not over:
                    raise

    def remove(self, container_id: str) -> None:
        from docker.errors import APIError

        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        while True:
            with self._client("remove a container") as client:
                problem = ""
                try:
                    client.remove_container(container_id, force=True, v=True)
                except APIError as error:
                    if error.status_code == 404:
                        return
                    # 409: somebody else is removing it; 500: often passes (a busy mount).
                    problem = str(error.explanation or error)
            if self.state(container_id) is None:
                return
            if time.monotonic() > deadline:
                raise EngineError(
                    "engine.not-removed",
                    f"container {container_id[:12]} does not go away: {problem or 'still there'}",
                    fix="look at the engine's log; `sealbench clean` removes it afterwards",
                )
            time.sleep(0.1)

    def containers(self, labels: Mapping[str, str]) -> tuple[ContainerSummary, ...]:
        wanted = [f"{key}={value}" if value else key for key, value in sorted(labels.items())]
        with self._client("list containers") as client:
            found = client.containers(all=True, filters={"label": wanted})
        return tuple(
            ContainerSummary(
                container_id=str(item["Id"]),
                name=str((item.get("Names") or [""])[0]).lstrip("/"),
                status=str(item.get("State") or "unknown"),
                labels={str(k): str(v) for k, v in (item.get("Labels") or {}).items()},
            )
            for item in found
        )

    def close(self) -> None:
        """Close the idle connections; those in use close when their call ends."""
        with self._lock:
            self._closed = True
            idle = list(self._idle)
            self._idle.clear()
        for client in idle:
            client.close()

    @contextmanager
    def _client(self, doing: str, timeout_s: float = CALL_TIMEOUT_S) -> Iterator[APIClient]:
        with self._lock:
            client = self._idle.pop() if self._idle else None
        with _translated(doing):
            if client is None:
                client = _new_client(self._host, self._api_version)
            client.timeout = (CONNECT_TIMEOUT_S, timeout_s)
            try:
                yield client
            finally:
                with self._lock:
                    keep = not self._closed
                    if keep:
                        self._idle.append(client)
                if not keep:
                    client.close()


def is_pinned(reference: str) -> bool:
    """Is this ``name@sha256:<digest>`` without a tag?"""
    name = reference.partition("@")[0]
    return bool(_BY_DIGEST.fullmatch(reference)) and ":" not in name.rpartition("/")[2]


def _new_client(host: str, api_version: str) -> APIClient:
    """A client that knows nothing of the user's configuration: no proxies, no credentials."""
    from docker import APIClient
    from docker.auth import AuthConfig
    from docker.utils import kwargs_from_env
    from docker.utils.proxy import ProxyConfig

    tls = {} if host.startswith("unix://") else kwargs_from_env()
    client = APIClient(
        base_url=host, version=api_version, timeout=CALL_TIMEOUT_S, tls=tls.get("tls", False)
    )
    client.trust_env = False
    client._proxy_configs = ProxyConfig()
    client._auth_configs = AuthConfig({})
    client._general_configs = {}
    return client


def _negotiate(host: str) -> tuple[str, bool]:
    """(the API version to speak, is it Podman)."""
    client = _new_client(host, "1.40")
    try:
        version = client.version(api_version=False)
    finally:
        client.close()
    offered = str(version.get("ApiVersion") or "")
    match = re.fullmatch(r"(\d+)\.(\d+)", offered)
    if match is None or (found := (int(match[1]), int(match[2]))) < _MIN_API:
        raise EngineError(
            "engine.too-old",
            f"the engine speaks API {offered or 'unknown'}, older than 1.40",
            fix="install Docker 19.03 or newer, or Podman 4 or newer",
        )
    return ".".join(map(str, min(found, _MAX_API))), is_podman(version)


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Turn what the SDK raises into an ``EngineError``: lost, or refused."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        if error.status_code == 404:
            code, what = "engine.not-there", "it is not there"
        else:
            code, what = "engine.refused", "the engine refused"
        raise EngineError(
            code,
            f"cannot {doing}: {what}: {error.explanation or error}",
            fix="the message is the engine's own; its log may tell more",
        ) from error
    except (RequestException, HTTPError, DockerException, OSError, json.JSONDecodeError) as error:
        raise EngineError(
            "engine.lost",
            f"cannot {doing}: the engine does not answer ({_short(error)})",
            fix="see that the container engine runs, then start the run again: it resumes",
        ) from error


def _short(error: BaseException) -> str:
    """The last cause in a chain, without the client library's layers of wrapping."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return f"{type(error).__name__}: {error}"[:200]


def _is_read_timeout(error: BaseException) -> bool:
    from urllib3.exceptions import ReadTimeoutError

    return any(isinstance(part, ReadTimeoutError) for part in (*error.args, error.__context__))


def _or_none(call: Any, reference: str) -> Any:
    from docker.errors import NotFound

    try:
        return call(reference)
    except NotFound:
        return None
