"""Additional listeners of test clusters, for secured clients or for separate byte counts.

Every broker has a plain listener on loopback, which the cluster itself uses and tests can use. A cluster can have more
listeners, each with its own port on every broker. A listener with the protocol `SASL_SSL` is for tests of secured
clients. A listener with `PLAINTEXT` has traffic that can be counted separately from all other traffic.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackassign.errors import ClusterError, ConfigError, MissingExtraError
from rackassign.testing._topics import admin_client
from rackassign.text import describe_error

PLAINTEXT = "PLAINTEXT"
SASL_SSL = "SASL_SSL"
MECHANISM = "SCRAM-SHA-512"

USERNAME = "rackassign"
PASSWORD = "a-password-for-tests"  # noqa: S105 - for clusters on loopback that run for minutes

_NAME = re.compile(r"[A-Z][A-Z0-9]*")
_RESERVED_NAMES = frozenset({"CONTROLLER", "EXTERNAL", "INTERNAL", "PLAINTEXT"})
_RETRY_S = 0.1


def check_listeners(listeners: Mapping[str, str]) -> None:
    # Callers need not check types.
    unchecked: object = listeners
    if not isinstance(unchecked, Mapping):
        raise ConfigError(f"listeners: expected protocols by name, got {unchecked!r}")
    for name, protocol in listeners.items():
        if not _NAME.fullmatch(str(name)) or name in _RESERVED_NAMES:
            reserved = ", ".join(sorted(_RESERVED_NAMES))
            raise ConfigError(
                f"listeners: expected a name of capital letters and digits other than {reserved}, got {name!r}"
            )
        if protocol not in {PLAINTEXT, SASL_SSL}:
            raise ConfigError(f"listeners.{name}: expected {PLAINTEXT} or {SASL_SSL}, got {protocol!r}")


@dataclass(frozen=True, slots=True)
class ClusterCertificates:
    """Certificates of one cluster: its own certificate authority, and the certificate issued to the brokers."""

    authority: Path
    # PEM in one line, as Kafka properties contain it.
    key: str = field(repr=False)
    chain: str

    @classmethod
    def issued(cls, host: str, directory: Path) -> ClusterCertificates:
        """Create a new certificate authority and a certificate for a host name or address."""
        try:
            import trustme  # noqa: PLC0415 - only for secured clusters
            from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError("trustme", "testing") from error
        certificate_authority = trustme.CA()
        authority = directory / "authority.pem"
        certificate_authority.cert_pem.write_to_path(str(authority))
        issued = certificate_authority.issue_cert(host)
        # Kafka reads keys in this format only.
        key = form.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return cls(authority, _one_line(key), _one_line(chain))

    def broker_properties(self, listeners: Mapping[str, str]) -> dict[str, str]:
        """Return the broker properties for security, without those of the listeners themselves."""
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        prefix = MECHANISM.lower()
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.key,
            "ssl.keystore.certificate.chain": self.chain,
            "sasl.enabled.mechanisms": MECHANISM,
            **{f"listener.name.{name.lower()}.{prefix}.sasl.jaas.config": login for name in secured(listeners)},
        }

    def client_config(self) -> dict[str, str]:
        """Return the arguments for a kafka-python client, without `bootstrap_servers`."""
        return {
            "security_protocol": SASL_SSL,
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": USERNAME,
            "sasl_plain_password": PASSWORD,
            "ssl_cafile": str(self.authority),
        }


def secured(listeners: Mapping[str, str]) -> list[str]:
    """Return the names of the listeners that require authentication."""
    return [name for name, protocol in listeners.items() if protocol == SASL_SSL]


def create_user(bootstrap: str, client_configs: Iterable[Mapping[str, Any]], timeout_s: float) -> None:
    """Create the user, and wait until every broker authenticates it."""
    from kafka.admin import UserScramCredentialUpsertion  # noqa: PLC0415 - only for secured clusters
    from kafka.errors import KafkaConfigurationError, KafkaError  # noqa: PLC0415

    deadline = time.monotonic() + timeout_s
    try:
        with admin_client({"bootstrap_servers": bootstrap}, timeout_s) as client:
            refused = client.alter_user_scram_credentials([UserScramCredentialUpsertion(USERNAME, MECHANISM, PASSWORD)])
    except KafkaError as error:
        raise ClusterError(f"the user cannot be created: {describe_error(error)}") from error
    if any(refused.values()):
        raise ClusterError(f"the user cannot be created: {refused}")
    for client_config in client_configs:
        while True:
            try:
                with admin_client(client_config, max(1.0, deadline - time.monotonic())):
                    break
            except KafkaConfigurationError:
                raise
            except KafkaError as error:
                if time.monotonic() >= deadline:
                    raise ClusterError(
                        f"{client_config['bootstrap_servers']} does not authenticate the user: {error}"
                    ) from error
                # The broker has not received the new user yet, and no event reports that it has.
                time.sleep(_RETRY_S)


def _one_line(pem: bytes) -> str:
    return " ".join(pem.decode("ascii").split("\n")).strip()
