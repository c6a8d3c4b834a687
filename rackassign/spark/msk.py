"""Tokens for Amazon MSK with IAM, for the option `tokenProvider`.

The token is a request signed with the credentials that boto finds in the process: those of the instance profile, of the
pod's service account or of the environment. Nothing is sent to AWS for the signature itself.
"""

from __future__ import annotations

import os

from rackassign.errors import ConfigError, MissingExtraError

_REGION = "region"
_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


def token(config: str) -> tuple[str, float]:
    """Return a token for MSK, and the time at which it runs out in seconds since 1970.

    Args:
        config: The value of `kafka.sasl.oauthbearer.config`: `region=eu-west-1`. If empty, the region is that of the
            environment (`AWS_REGION` or `AWS_DEFAULT_REGION`).

    Raises:
        ConfigError: There is no region.
        MissingExtraError: The extra `msk` is not installed.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError("aws-msk-iam-sasl-signer-python", "msk") from error
    signed, expires_ms = MSKAuthTokenProvider.generate_auth_token(_region(config))
    return str(signed), expires_ms / 1000


def _region(config: str) -> str:
    settings = dict(part.split("=", 1) for part in (config or "").replace(",", " ").split() if "=" in part)
    unknown = sorted(settings.keys() - {_REGION})
    if unknown or (config and not settings):
        raise ConfigError(
            "kafka.sasl.oauthbearer.config: expected region=NAME for tokenProvider=rackassign.spark.msk:token"
        )
    found = settings.get(_REGION) or next(filter(None, map(os.environ.get, _VARIABLES)), None)
    if not found:
        raise ConfigError(
            f"no AWS region: set kafka.sasl.oauthbearer.config=region=NAME, or {_VARIABLES[0]} on the driver and all "
            "executors"
        )
    return found
