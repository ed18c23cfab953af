"""The login at a registry: Basic, or a token of the service that it names."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from reconciler.engines.images.connection import RegistryAnswer, RegistryConnection, RegistryRequest
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.workload.image_reference import ImageError, ImageReference

CHALLENGE_SECONDS = 3600.0
"""Seconds for which the type of login of a registry is remembered."""
SHORTEST_TOKEN = 60.0
"""The default life of a token in seconds, and the shortest that is assumed."""
MOST_TOKENS = 1000
"""The most tokens that are remembered."""
TOKEN_BYTES = 65_536
"""The largest answer of a token service in bytes."""

_SCHEME = re.compile(r"(?:^|,)\s*(basic|bearer)(?=\s|,|$)", re.IGNORECASE)
_PARAMETER = re.compile(r'([a-z_]+)="([^"\\]*)"', re.IGNORECASE)
_BASIC, _BEARER = "basic", "bearer"


class _Challenge(NamedTuple):
    """``scheme`` is "" if no login is required. Token services have a ``realm``, which is their URL."""

    scheme: str
    realm: str
    service: str
    until: float


class _Token(NamedTuple):
    text: str
    made: float
    until: float


class _TokenAnswer(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: float = SHORTEST_TOKEN


_Place = tuple[str, RegistryCredentials | None]
"""A repository and the login for it."""


class Authorization:
    """Makes the header ``Authorization`` for requests to registries; tokens are remembered as long as they are valid.

    A request to ``/v2/`` finds the type of login, so that no request for a manifest is wasted.
    """

    def __init__(self, connection: RegistryConnection) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._challenges: dict[str, _Challenge] = {}
        self._tokens: dict[_Place, _Token] = {}

    async def header(self, reference: ImageReference, credentials: RegistryCredentials | None) -> dict[str, str]:
        """The header for pulling ``reference``, empty if no login is required. Raises ImageError."""
        challenge = self._challenges.get(reference.host)
        if challenge is None or challenge.until <= self._clock.monotonic():
            url = self._connection.url(reference.host, "/v2/")
            answer = await self._connection.send(RegistryRequest("GET", url))
            if answer.status == 429 or answer.status >= 500:
                raise self._connection.refusal(answer)
            challenge = self._remember(reference.host, answer)
        if challenge.scheme == _BASIC:
            return _make_basic_header(credentials) if credentials is not None and credentials.password else {}
        if challenge.scheme == _BEARER:
            return {"Authorization": f"Bearer {await self._token(challenge, reference, credentials)}"}
        return {}

    def renew(
        self, reference: ImageReference, credentials: RegistryCredentials | None, answer: RegistryAnswer, began: float
    ) -> bool:
        """Forget the token that ``answer`` refuses; returns whether a retry can help.

        It can if the token was older than ``began``, or if the registry now requires another type of login.
        """
        if answer.host != reference.host:
            return False
        former = self._challenges.get(reference.host)
        token = self._tokens.pop((reference.name, credentials), None)
        challenge = self._remember(reference.host, answer)
        if former is None or former[:3] != challenge[:3]:
            return challenge.scheme != ""
        return token is not None and token.made < began

    def _remember(self, host: str, answer: RegistryAnswer) -> _Challenge:
        until = self._clock.monotonic() + CHALLENGE_SECONDS
        challenge = _parse_challenge(answer.headers.get("www-authenticate", "") if answer.status == 401 else "", until)
        self._challenges[host] = challenge
        return challenge

    async def _token(
        self, challenge: _Challenge, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> str:
        scope = (reference.name, credentials)
        cached = self._tokens.get(scope)
        if cached is not None and cached.until > self._clock.monotonic():
            return cached.text
        if not self._connection.is_safe(challenge.realm):
            raise ImageError(f"{reference.host} names a token service that is not one of https: nothing is sent there")
        answer = await self._connection.send(_token_request(challenge, reference, credentials))
        if answer.status != 200:
            raise self._connection.refusal(answer)
        try:
            token_answer = msgspec.json.decode(answer.body, type=_TokenAnswer)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            token_answer = _TokenAnswer()
        text = token_answer.token or token_answer.access_token
        if not text or not text.isascii() or not text.isprintable():
            raise ImageError(f"{answer.host} sends no token for {reference.name}")
        # A tenth less: the token must still be valid when it arrives.
        now = self._clock.monotonic()
        self._tokens[scope] = _Token(text, now, now + max(token_answer.expires_in, SHORTEST_TOKEN) * 0.9)
        while len(self._tokens) > MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return text


def _token_request(
    challenge: _Challenge, reference: ImageReference, credentials: RegistryCredentials | None
) -> RegistryRequest:
    """The request for a token; with an identity token it is a form, as in OAuth."""
    words = {"service": challenge.service} if challenge.service else {}
    words |= {"scope": f"repository:{reference.repository}:pull"}
    if credentials is not None and credentials.identity_token:
        form = {"grant_type": "refresh_token", "refresh_token": credentials.identity_token, "client_id": "reconciler"}
        return RegistryRequest("POST", challenge.realm, form=form | words, limit=TOKEN_BYTES)
    url = f"{challenge.realm}{'&' if '?' in challenge.realm else '?'}{urlencode(words)}"
    return RegistryRequest(
        "GET", url, _make_basic_header(credentials) if credentials is not None else {}, limit=TOKEN_BYTES
    )


def _make_basic_header(credentials: RegistryCredentials) -> dict[str, str]:
    login = f"{credentials.username}:{credentials.password}".encode()
    return {"Authorization": f"Basic {base64.b64encode(login).decode()}"}


def _parse_challenge(text: str, until: float) -> _Challenge:
    """The challenge in a header WWW-Authenticate; a token is preferred if there is a choice."""
    schemes = [(match[1].lower(), match.end()) for match in _SCHEME.finditer(text)]
    for scheme, end in sorted(schemes, reverse=True):
        following = min((start for _, start in schemes if start > end), default=len(text))
        values = dict(_PARAMETER.findall(text[end:following]))
        if scheme == _BASIC or values.get("realm"):
            return _Challenge(scheme, values.get("realm", ""), values.get("service", ""), until)
    return _Challenge("", "", "", until)
