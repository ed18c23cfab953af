"""Whom a program stands for, by the claims of its token: a service account for a CI job, the sender of a webhook."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from reconciler.model.query_match import fits_parts
from reconciler.settings import SenderSettings, TokenExchangeSettings

LONGEST_TOKEN = 16_384
"""Characters of the longest token."""


def matches_claims(rule: TokenExchangeSettings | SenderSettings, claims: Mapping[str, Any]) -> bool:
    """Whether ``claims`` has every claim of ``rule``."""
    return all(name in claims and _matches_pattern(pattern, claims[name]) for name, pattern in rule.claims.items())


def _matches_pattern(pattern: str, claim: Any) -> bool:
    """Whether a claim has the value ``pattern``, in which ``*`` is any text; no list or object has one."""
    if isinstance(claim, bool):
        claim = str(claim).lower()
    if not isinstance(claim, str | int):
        return False
    return fits_parts(str(claim), pattern.split("*"))


def issuer_of(token: str) -> str:
    """The issuer that ``token`` names, before anything is checked; "" if it is no JSON Web Token."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        return ""
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else ""
