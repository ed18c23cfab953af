"""Tokens of a login: renewed before they end, by the refresh token in the profile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from reconciler.platform_cli.client import ApiError, Client, Endpoint
from reconciler.platform_cli.profiles import Profile

MARGIN = 30.0
"""Seconds before its end in which a token is renewed."""


def fresh(profile: Profile, endpoint: Endpoint) -> Profile:
    """``profile``, with a new token if its own is about to end; ``profile`` itself where that fails."""
    if not profile.refresh_token or profile.expires > time.time() + MARGIN:
        return profile
    client = Client(endpoint)
    try:
        form = {"grant_type": "refresh_token", "refresh_token": profile.refresh_token}
        return with_token(profile, client.request("POST", "/login/token", body=form).body)
    except ApiError:
        return profile  # the request itself then has the error that says what to do
    finally:
        client.close()


def with_token(profile: Profile, answer: Mapping[str, Any]) -> Profile:
    """``profile`` with the tokens of an answer of OAuth 2.0."""
    return replace(
        profile,
        token=str(answer["access_token"]),
        refresh_token=str(answer.get("refresh_token") or ""),
        expires=time.time() + float(answer.get("expires_in") or 0),
    )
