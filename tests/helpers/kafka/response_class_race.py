"""What two IO threads do that receive the first response of a version at once, step by step.

See `rackassign/clients/kafka_python/patches/patch.py` for the defect.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry


@contextmanager
def response_class_race(response: Any) -> Iterator[None]:
    """Leave a class registered for an API that is collected, as long as the block lasts."""
    # `response`: the class of the response, without a version.
    versions: dict[int, Any] = response._VERSIONS
    before = dict(versions)
    newest = response.max_version
    versions.pop(newest, None)
    kept = response[newest]
    # The other thread looked before the first one had stored its class, so it creates one too, which registers itself.
    del versions[newest]
    other = response[newest]
    versions[newest] = kept
    del other
    gc.collect()
    try:
        yield
    finally:
        versions.update(before)
        ResponseClassRegistry.register_response_class(weakref.proxy(response))


def registered_class(request: Any, version: int) -> Any:
    """Return the class with which the response to a request is decoded."""
    header = RequestHeader(request_api_key=request.API_KEY, request_api_version=version)
    return header.get_response_class()
