from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def dropped_consumers_are_gone() -> Iterator[None]:
    """Collect what a module's tests dropped: a consumer closes itself then, on a thread, and logs that.

    Otherwise that happens, and is logged, in the middle of another test.
    """
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "rackassign-dropped-consumer":
            thread.join()
