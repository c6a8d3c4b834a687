"""Connection to the Docker engine, and selection of a Kafka image."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rackassign.errors import ClusterError, MissingExtraError
from rackassign.testing.local.versions import KAFKA_VERSION
from rackassign.util.progress import Progress, ProgressCallback, ignore_progress

OFFICIAL_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
OWN_IMAGE = f"rackassign/kafka:{KAFKA_VERSION}"


def connect() -> Any:  # noqa: ANN401 - docker-py is untyped
    """Return a client of the Docker engine that testcontainers would use; the caller has to close it.

    Raises:
        ClusterError: No Docker engine responds.
        MissingExtraError: testcontainers is not installed.
    """
    try:
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - only for this provider
    except ImportError as error:
        raise MissingExtraError("testcontainers", "docker") from error
    try:
        with engine_errors("no Docker engine responds"):
            # The constructor requests the version of the engine immediately.
            return DockerClient(version="auto").client
    except ClusterError as error:
        _drop_socket(error)
        raise


@contextmanager
def engine_errors(problem: str) -> Iterator[None]:
    """Convert exceptions of Docker's client into a ClusterError that starts with the problem."""
    from docker.errors import DockerException  # noqa: PLC0415 - only for this provider
    from requests import RequestException  # noqa: PLC0415 - only for this provider

    try:
        yield
    except (DockerException, RequestException) as error:
        raise ClusterError(f"{problem}: {' '.join(str(error).split())[:500]}") from error


def find_image(image: str | None = None, progress: ProgressCallback | None = None) -> str:
    """Return the image to run: the given one, else `KAFKA_IMAGE`, else apache/kafka, else the one of `docker/build.sh`.

    The image is on the engine afterwards; it is pulled if it was missing.

    Args:
        image: The image to use; None selects one.
        progress: Callback for progress reports of a pull.

    Raises:
        ClusterError: No engine responds, or there is no image and none can be pulled.
        MissingExtraError: testcontainers is not installed.
    """
    requested = image or os.environ.get("KAFKA_IMAGE") or None
    on_progress = progress or ignore_progress
    client = connect()
    try:
        name = requested or OFFICIAL_IMAGE
        problem = _pull_if_missing(client, name, on_progress)
        if not problem:
            return name
        if requested is None and _has_image(client, OWN_IMAGE):
            return OWN_IMAGE
    finally:
        client.close()
    raise ClusterError(
        f"no image of Kafka: {name} cannot be pulled ({problem})"
        + (f", and {OWN_IMAGE} is not built" if requested is None else "")
        + f"; docker/build.sh in a checkout of rackassign builds {OWN_IMAGE} without a registry"
    )


def _has_image(client: Any, image: str) -> bool:  # noqa: ANN401
    from docker.errors import ImageNotFound  # noqa: PLC0415 - only for this provider

    try:
        with engine_errors("the Docker engine does not respond"):
            client.images.get(image)
    except ClusterError as error:
        if isinstance(error.__cause__, ImageNotFound):
            return False
        raise
    return True


def _pull_if_missing(client: Any, image: str, on_progress: ProgressCallback) -> str:  # noqa: ANN401
    """Pull an image unless the engine has it; return the reason of a failure, or an empty string."""
    if _has_image(client, image):
        return ""
    on_progress(Progress(f"Pulling {image}"))
    try:
        with engine_errors("pull"):
            client.images.pull(image)
    except ClusterError as error:
        return str(error)
    return ""


def _drop_socket(error: BaseException) -> None:
    """Release the socket that docker-py leaves open when no engine responds.

    Otherwise its ResourceWarning appears at some later time. If warnings are errors, it then fails an unrelated test.
    """
    cause: BaseException | None = error.__cause__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        while cause is not None:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__cause__ or cause.__context__
