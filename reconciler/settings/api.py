"""The settings of the HTTP API: where it answers, how its writes reach Git, and who may log in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec


class TlsSettings(msgspec.Struct, frozen=True):
    """The files of a server: its certificate with the chain, and its private key, as PEM."""

    certificate: Path
    key: Path


class SenderSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Who signs deliveries: the bearer of a token of ``issuer`` that has all ``claims``."""

    issuer: str
    audience: str
    claims: dict[str, str]
    ca_file: Path | None = None


class WebhookSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A webhook that makes the daemon look at ``source``.

    Deliveries are signed with the secret in ``secret_file``, or have a token of the sender ``oidc``.
    """

    source: str
    forge: Literal["bitbucket", "forgejo", "generic", "gitea", "github", "gitlab"]
    secret_file: Path | None = None
    oidc: SenderSettings | None = None


class OidcSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The OpenID provider at which people log in; ``session_lasts`` in seconds.

    ``client_secret_file`` is None for a public client. ``groups`` is a group of the provider → a group of the org.
    """

    issuer: str
    client_id: str
    client_secret_file: Path | None = None
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    email_claim: str = "email"
    groups_claim: str = "groups"
    groups: dict[str, str] = {}
    ca_file: Path | None = None
    session_lasts: float = 86_400.0


class TokenExchangeSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A rule: the service account that a job may be whose token has all ``claims``; ``lasts`` in seconds."""

    issuer: str
    audience: str
    claims: dict[str, str]
    service_account: str
    lasts: float = 900.0
    ca_file: Path | None = None


class RateLimitSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The requests a second of one address, and of one caller, that last; 0: no limit."""

    address: int = 1000
    caller: int = 500


class ApiMetricsSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The keys of the ``resources`` that have metrics of their own."""

    resources: tuple[str, ...] = ()


class ApiSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Where the HTTP API answers: at ``HOST:PORT`` ("": only at the socket), and how its writes reach Git.

    ``url`` is its address as clients see it ("": that of ``address``). ``tls`` is None on addresses of this host only.
    ``signing_key`` is the SSH key that signs commits (None: they are not signed). ``trusted_proxies`` are addresses and
    ranges whose header X-Forwarded-For counts; with ``proxy_protocol``, their connections begin with a header.
    ``page``: browsers get the page at ``/``.
    """

    address: str = ""
    url: str = ""
    tls: TlsSettings | None = None
    writes: Literal["branch", "commit", "refuse"] = "commit"
    signing_key: Path | None = None
    webhooks: tuple[WebhookSettings, ...] = ()
    oidc: OidcSettings | None = None
    token_exchange: tuple[TokenExchangeSettings, ...] = ()
    metrics: ApiMetricsSettings = ApiMetricsSettings()
    rate_limits: RateLimitSettings = RateLimitSettings()
    trusted_proxies: tuple[str, ...] = ()
    proxy_protocol: bool = False
    page: bool = True

    @property
    def endpoint(self) -> str:
        """The base URL of the API as clients see it, without a slash at the end; "" if there is only the socket."""
        scheme = "https" if self.tls is not None else "http"
        return self.url.rstrip("/") or (f"{scheme}://{self.address}" if self.address else "")
