"""A typed view of an org (docs/platform/fields.md#other-kinds), for rules and logins."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View
from reconciler.model.kinds.gvc import Tracing


class AuthConfig(View, frozen=True):
    """Who may log in: people with e-mail addresses of ``domain_auto_members`` become members by it."""

    domain_auto_members: tuple[str, ...] = ()
    saml_only: bool = False


class Specification(View, frozen=True):
    """The body of an org; ``session_timeout_seconds`` is 0 if sessions have no timeout."""

    tracing: Tracing = Tracing()
    session_timeout_seconds: int = 0
    auth_config: AuthConfig = AuthConfig()


class Org(Envelope, frozen=True):
    """An org."""

    spec: Specification = Specification()
