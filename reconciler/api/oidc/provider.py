"""An OpenID provider: its metadata and keys, fetched when they are needed, and the check of tokens that it signed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from reconciler.api.problems import Problem
from reconciler.clock import Clock

if TYPE_CHECKING:
    import httpx2
    from joserfc.jwk import KeySet
    from joserfc.jwt import Token

KEYS_SECONDS = 3600.0
"""After this time metadata and keys are fetched again."""
REFETCH_SECONDS = 60.0
"""Between two fetches of the keys because of a token with an unknown key."""
FAILURE_SECONDS = 5.0
"""After a failed fetch, the next is not before this time: requests without a credential cause fetches."""
FETCH_SECONDS = 10.0
"""Seconds in which the provider must answer."""
LEEWAY = 60
"""Seconds by which the clock of the provider may be wrong."""
MOST_BYTES = 1 << 20
"""Bytes of the longest answer of a provider."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Signatures with a public key. `none` is no signature, and HMAC would take the public key for a secret."""

BASIC, POST = "client_secret_basic", "client_secret_post"
"""How a client sends its secret: in the header, or in the form."""

_Found = TypeVar("_Found")


class ProviderMetadata(msgspec.Struct, frozen=True):
    """What the provider publishes of itself."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = (BASIC,)
    """How clients may send their secret; a provider that lists none takes it in the header (OpenID Discovery, 3)."""


class OidcProvider:
    """The provider ``issuer``; ``ca_file`` has the authorities that sign its certificate (None: those of this host)."""

    def __init__(self, issuer: str, ca_file: Path | None, clock: Clock) -> None:
        self.issuer = issuer
        self._ca_file = ca_file
        self._clock = clock
        self._lock = asyncio.Lock()
        self._metadata: tuple[float, ProviderMetadata] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._failure: tuple[float, Problem] | None = None
        self._context: ssl.SSLContext | None = None

    async def metadata(self) -> ProviderMetadata:
        """The metadata. Raises Problem 503 if the provider does not answer with them."""
        async with self._lock:
            return await self._read_metadata()

    async def claims(self, token: str, audience: str, **expected: Any) -> dict[str, Any]:
        """The claims of ``token``, if the provider signed it for ``audience`` and it is valid now.

        ``expected`` are a ``nonce``, a ``client_id`` and an ``access_token`` that it belongs to. Raises Problem 401
        that says what is wrong, and 503 if the keys cannot be fetched.
        """
        from authlib.oidc.core import CodeIDToken  # with httpx2, a tenth of a second that only logins need
        from joserfc.errors import InvalidKeyIdError, JoseError

        try:
            try:
                signed = _decode_token(token, await self._key_set())
            except InvalidKeyIdError:
                signed = _decode_token(token, await self._key_set(unknown=True))
            options = {"iss": {"essential": True, "value": self.issuer}, "aud": {"essential": True, "value": audience}}
            claims = CodeIDToken(signed.claims, signed.header, options, expected)
            claims.validate(int(self._clock.now()), LEEWAY)
        except (JoseError, ValueError, RecursionError, TypeError) as error:
            raise Problem(401, f"the token is refused: {_describe_token_error(error)}", headers=BEARER) from None
        return dict(claims)

    async def get(self, url: str, form: type[_Found], what: str, credential: str = "") -> _Found:
        """The answer at ``url`` as ``form``. Raises Problem 503; ``what`` names it there."""
        import httpx2

        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        try:
            async with self.client(httpx2.AsyncClient) as client, client.stream("GET", url, headers=headers) as answer:
                answer.raise_for_status()
                content = b""
                async for part in answer.aiter_bytes():
                    content += part
                    if len(content) > MOST_BYTES:
                        raise ValueError("it is too long")
            return msgspec.json.decode(content, type=form)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
            # The message of an HTTP error has the URL; that of another one may have what the provider sent.
            reason = str(error) if isinstance(error, httpx2.HTTPError) else type(error).__name__
            raise Problem(503, f"the {what} of {self.issuer} cannot be read: {reason or 'no answer'}") from None

    def client(self, make: Callable[..., Any], **more: Any) -> Any:
        """An HTTP client of the type ``make`` for requests to the provider: bounded in time, without redirects."""
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._ca_file)
        client: httpx2.AsyncClient = make(verify=self._context, timeout=FETCH_SECONDS, follow_redirects=False, **more)
        return client

    async def _read_metadata(self) -> ProviderMetadata:
        now = self._clock.monotonic()
        if self._metadata is None or now - self._metadata[0] >= KEYS_SECONDS:
            self._metadata = (now, await self._fetch(self._discover))
        return self._metadata[1]

    async def _discover(self) -> ProviderMetadata:
        discovery_url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = await self.get(discovery_url, ProviderMetadata, "metadata")
        if metadata.issuer != self.issuer:
            raise Problem(503, f"the metadata at {discovery_url} are those of another issuer, {metadata.issuer[:200]}")
        for url in (
            metadata.jwks_uri,
            metadata.authorization_endpoint,
            metadata.token_endpoint,
            metadata.userinfo_endpoint,
        ):
            if url and not url.startswith("https://") and not self.issuer.startswith("http://"):
                raise Problem(503, f"the metadata at {discovery_url} name an address without https")
        return metadata

    async def _read_keys(self, url: str) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        jwks = await self.get(url, dict[str, Any], "keys")
        try:
            return KeySet.import_key_set(jwks)  # type: ignore[arg-type]
        except (JoseError, LookupError, TypeError, ValueError):
            raise Problem(503, f"the keys of {self.issuer} cannot be read: they are no JSON Web Key Set") from None

    async def _key_set(self, *, unknown: bool = False) -> KeySet:
        """The keys; those that are ``unknown`` make them be fetched again, within limits."""
        async with self._lock:
            now = self._clock.monotonic()
            age = now - self._keys[0] if self._keys is not None else KEYS_SECONDS
            if self._keys is None or age >= KEYS_SECONDS or (unknown and age >= REFETCH_SECONDS):
                url = (await self._read_metadata()).jwks_uri
                self._keys = (now, await self._fetch(lambda: self._read_keys(url)))
            return self._keys[1]

    async def _fetch(self, read: Callable[[], Any]) -> Any:
        """What ``read`` returns; a failure is the answer for a while."""
        now = self._clock.monotonic()
        if self._failure is not None and now - self._failure[0] < FAILURE_SECONDS:
            raise Problem(503, str(self._failure[1]))
        try:
            return await read()
        except Problem as problem:
            self._failure = (now, problem)
            raise


BEARER = {"WWW-Authenticate": "Bearer"}
"""The header of an answer that refuses a token."""


def _decode_token(token: str, keys: KeySet) -> Token:
    from joserfc import jwt
    from joserfc.jws import JWSRegistry

    return jwt.decode(token, keys, registry=JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False))


def _describe_token_error(error: Exception) -> str:
    """What is wrong with a token, without anything of its content."""
    from joserfc import errors

    match error:
        case errors.ExpiredTokenError():
            return "it has expired"
        case errors.ClaimError(claim=("iat" | "nbf")):
            return "it is not valid yet; compare the clocks of both hosts"
        case errors.ClaimError(claim=name):
            return f"its claim `{name}` is missing or has another value"
        case errors.InvalidKeyIdError():
            return "no key of its issuer has signed it"
        case errors.BadSignatureError():
            return "its signature is wrong"
        case errors.UnsupportedAlgorithmError():
            return f"its algorithm is not one of {', '.join(ALGORITHMS)}"
    return "it is no signed JSON Web Token"
