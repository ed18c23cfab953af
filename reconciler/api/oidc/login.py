"""Logins of people: the redirect to the provider, its answer, and the codes by which a command gets its tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from reconciler.api.oidc.provider import BASIC, POST, OidcProvider, ProviderMetadata
from reconciler.api.problems import Problem
from reconciler.clock import Clock
from reconciler.settings import OidcSettings

LOGIN_SECONDS = 600
"""Seconds in which a person logs in at the provider."""
CODE_SECONDS = 60.0
"""Seconds in which a command exchanges its code."""
MOST_CODES = 10_000
"""The codes that are remembered; each is that of a person who has just logged in."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_CHALLENGE = re.compile("[-_A-Za-z0-9]{43}")


class LoginRequest(msgspec.Struct, frozen=True):
    """A login that began: what the provider must return, and where the person goes on.

    ``redirect_uri``, ``challenge`` and ``client_state`` are those of the command, "" on the page for devices, which
    has the ``user_code``. ``page`` is the path of the page that follows, "" where no browser is logged in.
    """

    state: str
    nonce: str
    verifier: str
    redirect_uri: str = ""
    challenge: str = ""
    client_state: str = ""
    user_code: str = ""
    page: str = ""


class LoginIdentity(msgspec.Struct, frozen=True):
    """Who logged in: the address, the subject at the provider, and those of their groups that have a meaning.

    ``at`` is when, in seconds since the epoch.
    """

    email: str
    subject: str
    groups: tuple[str, ...] = ()
    at: float = 0.0


class IssuedCode(NamedTuple):
    """What a code stands for, and when it ends on the monotonic clock."""

    identity: LoginIdentity
    request: LoginRequest
    ends: float


class PeopleLogin:
    """Logins at the provider of ``settings``, which returns people to ``callback``. Methods raise Problem."""

    def __init__(self, settings: OidcSettings, callback: str, clock: Clock) -> None:
        self.settings = settings
        self._callback = callback
        self._clock = clock
        self._provider = OidcProvider(settings.issuer, settings.ca_file, clock)
        self._codes: dict[str, IssuedCode] = {}

    async def authorization_url(self, request: LoginRequest) -> str:
        """Where a browser goes to log in."""
        metadata = await self._provider.metadata()
        async with self._client(metadata) as client:
            url, _ = client.create_authorization_url(
                metadata.authorization_endpoint, request.state, code_verifier=request.verifier, nonce=request.nonce
            )
        return str(url)

    async def identify(self, request: LoginRequest, code: str) -> LoginIdentity:
        """Who logged in, by the ``code`` of the provider."""
        token = await self._token(request, code)
        access, id_token = token.get("access_token"), token.get("id_token")
        if not isinstance(id_token, str):
            raise Problem(401, f"{self.settings.issuer} sent no id token; `scopes` needs openid")
        client = self.settings.client_id
        claims = await self._provider.claims(
            id_token, client, nonce=request.nonce, client_id=client, access_token=access
        )
        claim_names = (self.settings.email_claim, *((self.settings.groups_claim,) if self.settings.groups else ()))
        if any(claim_at(claims, name) is None for name in claim_names):
            claims = {**await self._userinfo(str(access), claims["sub"]), **claims}
        return self._identity(claims)

    def add_code(self, identity: LoginIdentity, request: LoginRequest) -> str:
        """A code that the command of ``request`` exchanges once."""
        now = self._clock.monotonic()
        self._codes = {code: issued for code, issued in self._codes.items() if issued.ends > now}
        if len(self._codes) >= MOST_CODES:
            raise Problem(503, "too many people log in at once; try again")
        code = secrets.token_urlsafe(32)
        self._codes[code] = IssuedCode(identity, request, now + CODE_SECONDS)
        return code

    def take_code(self, code: str, redirect_uri: str, verifier: str) -> LoginIdentity | None:
        """Who logged in for the command that has ``verifier``; None if the code is not valid. It is void after that."""
        issued = self._codes.pop(code, None)
        if issued is None or issued.ends <= self._clock.monotonic() or issued.request.redirect_uri != redirect_uri:
            return None
        return issued.identity if hmac.compare_digest(issued.request.challenge, challenge_of(verifier)) else None

    async def _token(self, request: LoginRequest, code: str) -> dict[str, Any]:
        import httpx2
        from authlib.integrations.base_client import OAuthError

        metadata = await self._provider.metadata()
        try:
            async with self._client(metadata) as client:
                token: dict[str, Any] = await client.fetch_token(
                    metadata.token_endpoint,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=request.verifier,
                    redirect_uri=self._callback,
                )
        except OAuthError as error:
            raise Problem(401, f"{self.settings.issuer} refuses the login: {str(error.error)[:100]}") from None
        except (httpx2.HTTPError, ValueError):
            raise Problem(503, f"{self.settings.issuer} did not answer with a token") from None
        return token

    async def _userinfo(self, access: str, subject: str) -> dict[str, Any]:
        endpoint = (await self._provider.metadata()).userinfo_endpoint
        if not endpoint:
            return {}
        claims: dict[str, Any] = await self._provider.get(endpoint, dict[str, Any], "userinfo", access)
        if claims.get("sub") != subject:
            raise Problem(401, f"the userinfo of {self.settings.issuer} is that of another person")
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> LoginIdentity:
        settings = self.settings
        email = claim_at(claims, settings.email_claim)
        if not isinstance(email, str) or not email:
            raise Problem(403, f"{settings.issuer} names no address in the claim `{settings.email_claim}`")
        # Some providers let people enter any address; those that verify none leave the claim out.
        if settings.email_claim == "email" and claims.get("email_verified", True) not in (True, "true"):
            raise Problem(403, f"{settings.issuer} has not verified the address {email[:254]}")
        group_claim = claim_at(claims, settings.groups_claim)
        groups = [group_claim] if isinstance(group_claim, str) else group_claim if isinstance(group_claim, list) else []
        mapped = tuple(group for group in groups if group in settings.groups)
        return LoginIdentity(email, str(claims["sub"]), mapped, self._clock.now())

    def _client(self, metadata: ProviderMetadata) -> Any:
        from authlib.integrations.httpx_client import AsyncOAuth2Client  # as in Provider.claims

        settings, secret = self.settings, self._secret()
        method = client_auth(metadata.token_endpoint_auth_methods_supported) if secret is not None else "none"
        return self._provider.client(
            AsyncOAuth2Client,
            client_id=settings.client_id,
            client_secret=secret,
            token_endpoint_auth_method=method,
            scope=" ".join(settings.scopes),
            redirect_uri=self._callback,
            code_challenge_method="S256",
        )

    def _secret(self) -> str | None:
        path = self.settings.client_secret_file
        if path is None:
            return None
        try:
            return path.read_text().strip()
        except (OSError, ValueError):
            raise Problem(503, "the file `clientSecretFile` of the settings cannot be read") from None


def new_request(
    redirect_uri: str = "", challenge: str = "", client_state: str = "", user_code: str = "", page: str = ""
) -> LoginRequest:
    """A login that begins now."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return LoginRequest(state, nonce, verifier, redirect_uri, challenge, client_state, user_code, page)


def check_command(redirect_uri: str, challenge: str, method: str) -> None:
    """Raise Problem 400 unless a command on the machine of the browser waits at ``redirect_uri``, with PKCE."""
    try:
        url = urlsplit(redirect_uri)
        loopback = url.scheme == "http" and url.hostname in _LOOPBACK and bool(url.port) and "@" not in url.netloc
    except ValueError:
        loopback = False
    if not loopback or "#" in redirect_uri or not redirect_uri.isascii() or not redirect_uri.isprintable():
        raise Problem(400, "redirect_uri is an address of the command on its own machine: http://127.0.0.1:PORT/PATH")
    if method != "S256" or not _CHALLENGE.fullmatch(challenge):
        raise Problem(400, "send code_challenge, the SHA-256 of the verifier, and code_challenge_method=S256")


def build_redirect_url(request: LoginRequest, **parameters: str) -> str:
    """The address of the command with ``parameters``."""
    if request.client_state:
        parameters["state"] = request.client_state
    mark = "&" if "?" in request.redirect_uri else "?"
    return f"{request.redirect_uri}{mark}{urlencode(parameters)}"


def client_auth(methods: Collection[str]) -> str:
    """How the client sends its secret to a provider with ``methods``: in the form only if it takes no other."""
    return POST if POST in methods and BASIC not in methods else BASIC


def challenge_of(verifier: str) -> str:
    """The code challenge of ``verifier`` (RFC 7636, S256)."""
    return (
        base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest())
        .decode()
        .rstrip("=")
    )


def claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """The claim with the name ``path``, or else that to which its dots lead; None if there is none."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
