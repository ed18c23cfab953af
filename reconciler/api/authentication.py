"""Who calls: the peer of the unix socket, or the bearer of a credential."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping

from starlette.requests import Request

from reconciler.access.rules import SUPERUSERS, VIEWERS, Caller
from reconciler.api.connections import Peer
from reconciler.api.problems import Problem
from reconciler.model.key import Kind

Verify = Callable[[str], Caller]
"""From a credential without its prefix to the caller; raises Problem 401."""


class Authenticator:
    """Knows the credentials by their prefix."""

    def __init__(self, verifiers: Mapping[str, Verify]) -> None:
        self._verifiers = verifiers

    def caller(self, request: Request) -> Caller:
        """The caller of ``request``: by its header ``Authorization``, else by its unix socket. Raises Problem 401."""
        header = request.headers.get("authorization", "")
        if header:
            return self._bearer(header.removeprefix("Bearer ").strip())
        peer = getattr(request.state, "peer", None)
        if peer is None:
            raise unauthorized("send a credential in the header `Authorization`")
        return peer_caller(peer)

    def _bearer(self, credential: str) -> Caller:
        for prefix, verify in self._verifiers.items():
            if credential.startswith(prefix):
                return verify(credential)
        raise unauthorized("the credential is unknown, expired or revoked")


def unauthorized(message: str) -> Problem:
    """The problem of a request without a valid credential."""
    return Problem(401, message, headers={"WWW-Authenticate": "Bearer"})


def peer_caller(peer: Peer) -> Caller:
    """Root and the user of the daemon are superusers; others are readers, whom the kernel lets connect."""
    group = SUPERUSERS if peer.uid in (0, os.geteuid()) else VIEWERS
    return Caller(f"{Kind.USER}/{user_name(peer.uid)}", frozenset({str(group)}))


def user_name(uid: int) -> str:
    """The name of a user of this host."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"
