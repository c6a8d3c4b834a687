"""Tokens that a broker accepts without a signature, for tests of OAUTHBEARER; a `tokenProvider` of the Spark source."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

BROKER_CONFIG = {
    "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.secure.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";'
    ),
    # A connection ends with the token of its login, unless the client logs in again before.
    "listener.name.secure.oauthbearer.connections.max.reauth.ms": "3600000",
}
"""Properties that add the mechanism to the listener SECURE of a test cluster."""


def get(config: str) -> tuple[str, float]:
    """Return a token, and note the process that requested it."""
    chosen = json.loads(config)
    with Path(chosen["log"]).open("a", encoding="ascii") as log:
        log.write(f"{os.getpid()}\n")
    now = time.time()
    claims = {"sub": "rackassign", "iat": now - 1, "exp": now + chosen["lifetime_s"]}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.", claims["exp"]


def refuse(_: str) -> tuple[str, float]:
    """Fail, as a function without its permissions does."""
    raise PermissionError("this role may not get tokens")


def garbage(_: str) -> tuple[str, float]:
    """Return what no broker takes for a token."""
    return "a.b.c", time.time() + 3600


def _encoded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode("ascii")
