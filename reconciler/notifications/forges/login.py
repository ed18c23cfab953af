"""How this host logs in to a forge: by a token in a file, or as an App of GitHub."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.channels.secret_files import SecretFile
from reconciler.notifications.forges.client import ForgeClient, ForgeRefusal, read_token
from reconciler.times import parse_time

RENEW_SECONDS = 300.0
"""Seconds before its end at which a token of an installation is replaced."""
_JWT_SECONDS = 540
_SKEW_SECONDS = 60
"""GitHub refuses a token from its future: the clock of this host may be ahead."""
_NOT_GRANTED = 422
"""What GitHub answers to an App that asks for a right that it has not."""
_VERSION = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}


class Login(Protocol):
    """Makes the headers that log in."""

    async def get_headers(self) -> Mapping[str, str]:
        """The headers. Raises SendFailed if the secret cannot be read, or the forge gives none."""

    def forget(self) -> bool:
        """Log in anew with the next request; False if that would change nothing."""


class TokenLogin:
    """A token in a file, which is read for each request: a new one counts at once."""

    def __init__(self, file: SecretFile, form: str, username: str = "") -> None:
        """``form`` is ``bearer``, ``token``, ``private`` or ``github``; with ``username`` both are a password."""
        self._file = file
        self._form = form
        self._username = username

    async def get_headers(self) -> Mapping[str, str]:
        """See Login."""
        token = read_token(self._file)
        if self._username:
            pair = base64.b64encode(f"{self._username}:{token}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        if self._form == "private":
            return {"PRIVATE-TOKEN": token}
        if self._form == "token":
            return {"Authorization": f"token {token}"}
        headers = {"Authorization": f"Bearer {token}"}
        return {**headers, **_VERSION} if self._form == "github" else headers

    def forget(self) -> bool:
        """See Login."""
        return False


class _Installation(msgspec.Struct):
    id: int


class _Token(msgspec.Struct):
    token: str
    expires_at: str


class GitHubApp:
    """An App of GitHub with its private key in a file: it gets tokens for one repository, with the rights it uses.

    ``installation`` is "" for the one that ``path`` (``owner/name``) has.
    """

    def __init__(self, client: ForgeClient, app: str, key: SecretFile, path: str, installation: str = "") -> None:
        self._client = client
        self._clock = client.clock
        self._app = app
        self._key = key
        self._path = path
        self._installation = installation
        self._turn = asyncio.Lock()
        self._token: _Token | None = None
        self._ends = 0.0
        self.permissions: dict[str, str] = {"checks": "write", "pull_requests": "write"}

    async def get_headers(self) -> Mapping[str, str]:
        """See Login."""
        async with self._turn:
            if self._token is None or self._clock.now() > self._ends - RENEW_SECONDS:
                self._token = await self._request_token()
                self._ends = parse_time(self._token.expires_at)
            return {"Authorization": f"Bearer {self._token.token}", **_VERSION}

    def forget(self) -> bool:
        """See Login."""
        had, self._token = self._token is not None, None
        return had

    async def _request_token(self) -> _Token:
        if not self._installation:
            found = await self._client.get(f"/repos/{self._path}/installation", _Installation, self._get_app_headers)
            self._installation = str(found.id)
        try:
            return await self._request_rights(self.permissions)
        except ForgeRefusal as refusal:
            if refusal.status != _NOT_GRANTED:
                raise
        # Commits are shown without deployments, if that is the right which the App lacks.
        fewer = {name: level for name, level in self.permissions.items() if name != "deployments"}
        try:
            return await self._request_rights(fewer)
        except ForgeRefusal as refusal:
            if refusal.status == _NOT_GRANTED:
                raise SendFailed(f"{refusal}: give the App the rights that the settings need") from None
            raise

    async def _request_rights(self, permissions: Mapping[str, str]) -> _Token:
        body: dict[str, Any] = {"repositories": [self._path.rpartition("/")[2]], "permissions": permissions}
        path = f"/app/installations/{self._installation}/access_tokens"
        return await self._client.send("POST", path, _Token, self._get_app_headers, body)

    async def _get_app_headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {sign_app_token(self._app, self._key, self._clock.now())}", **_VERSION}


def sign_app_token(app: str, key: SecretFile, now: float) -> str:
    """The JSON Web Token by which the App ``app`` logs in, signed with the RSA key in the file ``key``.

    Raises SendFailed and SendRefused, which show nothing of the key.
    """
    from cryptography.hazmat.primitives import hashes, serialization  # only an App needs it
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    raw = key.read("key of the App").encode()
    try:
        loaded = serialization.load_pem_private_key(raw, None)
    except (ValueError, TypeError):
        loaded = None
    if not isinstance(loaded, rsa.RSAPrivateKey):
        raise SendRefused(f"{key.path} is not the private key of an App: a file in PEM with an RSA key")
    claims = {"iat": int(now) - _SKEW_SECONDS, "exp": int(now) + _JWT_SECONDS, "iss": app}
    parts = [_encode_part(msgspec.json.encode(part)) for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
    signed = ".".join(parts)
    signature = loaded.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_encode_part(signature)}"


def _encode_part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
