"""Pages that a server of a test serves on this machine."""

from __future__ import annotations

import urllib.request
from urllib.error import HTTPError, URLError


def fetched(url: str) -> tuple[int, str]:
    """Return the status and the text of a page."""
    assert url.startswith(("http://127.0.0.1:", "http://localhost:"))
    try:
        with urllib.request.urlopen(url, timeout=600) as answer:  # noqa: S310 - see above
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def fetched_metrics(port: int) -> str:
    """Return the metrics that a process of this machine serves; empty while it does not respond."""
    try:
        return fetched(f"http://127.0.0.1:{port}/metrics")[1]
    except URLError:
        return ""
