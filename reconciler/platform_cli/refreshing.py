"""Tokens of a login: renewed before they end, by the refresh token in the profile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from reconciler.platform_cli.client import ApiEndpoint, Client
from reconciler.platform_cli.keyring import KeyringError, TokenKeyring
from reconciler.platform_cli.profiles import Profile, Profiles, change_profiles
from reconciler.platform_cli.refusals import ApiError

MARGIN = 30.0
"""Seconds before its end in which a token is renewed."""


def is_ending(profile: Profile) -> bool:
    """Whether the token of ``profile`` is to be renewed."""
    return bool(profile.refresh_token) and profile.expires <= time.time() + MARGIN


def renew_token(path: Path, keyring: TokenKeyring, name: str, endpoint: ApiEndpoint) -> Profile:
    """The profile ``name`` of the file ``path`` with a new token, which is stored; with the old one where that fails.

    A refresh token is good for one use, so of several commands at once the first renews, and the others wait for that.
    """

    def renew(profiles: Profiles) -> Profiles:
        profile = keyring.with_tokens(name, profiles.profiles[name])
        if not is_ending(profile):
            return profiles
        client = Client(endpoint._replace(token=""))
        try:
            form = {"grant_type": "refresh_token", "refresh_token": profile.refresh_token}
            fresh = with_token(profile, client.request("POST", "/login/token", body=form).body)
        except ApiError:
            return profiles  # the request itself then has the error that says what to do
        finally:
            client.close()
        return profiles.having(name, store_tokens(keyring, name, fresh))

    return keyring.with_tokens(name, change_profiles(path, renew).profiles[name])


def store_tokens(keyring: TokenKeyring, name: str, profile: Profile) -> Profile:
    """``profile`` as its file has it, its tokens in the keyring if it wants that and the keyring takes them."""
    try:
        return keyring.put(name, profile) if profile.keyring else profile
    except KeyringError:
        # A refresh token is good for one use: a token that is not stored would end the login.
        return replace(profile, keyring=False)


def with_token(profile: Profile, answer: Mapping[str, Any]) -> Profile:
    """``profile`` with the tokens of an answer of OAuth 2.0."""
    return replace(
        profile,
        token=str(answer["access_token"]),
        refresh_token=str(answer.get("refresh_token") or ""),
        expires=time.time() + float(answer.get("expires_in") or 0),
    )
