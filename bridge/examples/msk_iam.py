"""Amazon MSK with IAM: tokens made by its own signer, from the machine's credentials.

    pip install aws-msk-iam-sasl-signer-python

    [clusters.main]
    bootstrap_servers = "b-1.example.kafka.eu-central-1.amazonaws.com:9098"
    settings."security.protocol" = "SASL_SSL"
    settings."sasl.mechanism" = "OAUTHBEARER"
    settings."sasl.oauthbearer.config" = "eu-central-1"
    settings."oauth_cb" = "bridge.examples.msk_iam:token"

The client asks for a new token before the last one ends. The module of such a function has to be importable
by the bridge: installed beside it, or in a directory of PYTHONPATH.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MS_PER_S = 1_000


def token(region: str) -> tuple[str, float]:
    """A token and when it ends, in seconds since 1970. region: what sasl.oauthbearer.config says."""
    signer: Any = import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    text, ends_ms = signer.generate_auth_token(region)
    return text, ends_ms / _MS_PER_S
