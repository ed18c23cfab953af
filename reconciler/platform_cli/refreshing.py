"""Tokens of a login: renewed before they end, by the refresh token in the profile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from reconciler.platform_cli.client import ApiError, Client, Endpoint
from reconciler.platform_cli.profiles import Profile, Profiles, change_profiles

MARGIN = 30.0
"""Seconds before its end in which a token is renewed."""


def is_ending(profile: Profile) -> bool:
    """Whether the token of ``profile`` is to be renewed."""
    return bool(profile.refresh_token) and profile.expires <= time.time() + MARGIN


def renew(path: Path, name: str, endpoint: Endpoint) -> Profiles:
    """The profiles in the file ``path``, that of ``name`` with a new token; the same ones where that fails.

    A refresh token is good for one use, so of several commands at once the first renews, and the others wait for that.
    """

    def renewed(found: Profiles) -> Profiles:
        profile = found.profiles[name]
        if not is_ending(profile):
            return found
        client = Client(endpoint._replace(token=""))
        try:
            form = {"grant_type": "refresh_token", "refresh_token": profile.refresh_token}
            return found.having(name, with_token(profile, client.request("POST", "/login/token", body=form).body))
        except ApiError:
            return found  # the request itself then has the error that says what to do
        finally:
            client.close()

    return change_profiles(path, renewed)


def with_token(profile: Profile, answer: Mapping[str, Any]) -> Profile:
    """``profile`` with the tokens of an answer of OAuth 2.0."""
    return replace(
        profile,
        token=str(answer["access_token"]),
        refresh_token=str(answer.get("refresh_token") or ""),
        expires=time.time() + float(answer.get("expires_in") or 0),
    )
