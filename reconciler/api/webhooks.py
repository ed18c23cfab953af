"""Webhooks of forges: checked by their secret before anything is parsed, and all that they mean is "read now"."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from reconciler.settings import WebhookSettings

WINDOW = 3600.0
"""Seconds in which a delivery is not taken a second time."""
MOST_DELIVERIES = 10_000
"""The deliveries that are remembered."""
WAKE_SECONDS = 1.0
"""Between two wake-ups of a source; what arrives meanwhile becomes one."""


class _Scheme(NamedTuple):
    """The headers of a forge: with the signature (or the secret itself), what precedes it, and with the delivery."""

    signature: str
    delivery: str
    prefix: str = ""
    plain: bool = False


SCHEMES: Mapping[str, _Scheme] = {
    "github": _Scheme("x-hub-signature-256", "x-github-delivery", "sha256="),
    "gitlab": _Scheme("x-gitlab-token", "x-gitlab-event-uuid", plain=True),
    "gitea": _Scheme("x-gitea-signature", "x-gitea-delivery"),
    "forgejo": _Scheme("x-forgejo-signature", "x-forgejo-delivery"),
    "bitbucket": _Scheme("x-hub-signature", "x-request-uuid", "sha256="),
    "generic": _Scheme("x-signature-256", "x-delivery-id", "sha256="),
}
"""Forge → how it signs: HMAC-SHA256 over the body in hexadecimal, but GitLab sends the secret itself."""


def is_signed(forge: str, headers: Mapping[str, str], body: bytes, secret: bytes) -> bool:
    """Whether ``body`` was signed with ``secret``, compared in constant time; ``headers`` have lower-case names."""
    scheme = SCHEMES[forge]
    raw = headers.get(scheme.signature, "").encode("utf-8", "surrogateescape")
    if scheme.plain:
        return hmac.compare_digest(raw, secret)
    expected = scheme.prefix + hmac.new(secret, body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(raw, expected.encode())


def delivery_id(forge: str, headers: Mapping[str, str], body: bytes) -> str:
    """The id of the delivery; a digest of the body where the forge sends none."""
    return headers.get(SCHEMES[forge].delivery, "")[:200] or hashlib.sha256(body).hexdigest()


def read_secret(path: Path) -> bytes:
    """The secret in the file ``path``, "" if it cannot be read or is empty: then no delivery is taken."""
    try:
        return path.read_bytes().strip()
    except OSError:
        return b""


class Webhooks:
    """The deliveries to the webhooks of the settings; ``wake`` makes the daemon read a source now."""

    def __init__(
        self, hooks: tuple[WebhookSettings, ...], wake: Callable[[str], object], monotonic: Callable[[], float]
    ) -> None:
        self._hooks = {hook.source: hook for hook in hooks}
        self._wake = wake
        self._now = monotonic
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._last: dict[str, float] = {}
        self._planned: set[str] = set()

    def find(self, source: str) -> WebhookSettings | None:
        """The webhook of ``source``; None if the settings have none."""
        return self._hooks.get(source)

    def accept(self, source: str, delivery: str) -> bool:
        """Look at ``source``, unless ``delivery`` was taken before; returns whether it is new."""
        now = self._now()
        name = (source, delivery)
        while self._seen and (len(self._seen) >= MOST_DELIVERIES or next(iter(self._seen.values())) < now - WINDOW):
            self._seen.popitem(last=False)
        if name in self._seen:
            return False
        self._seen[name] = now
        if source not in self._planned:
            self._plan(source, self._last.get(source, now - WAKE_SECONDS) + WAKE_SECONDS - now)
        return True

    def _plan(self, source: str, wait: float) -> None:
        if wait <= 0:
            self._last[source] = self._now()
            self._wake(source)
            return
        self._planned.add(source)
        asyncio.get_running_loop().call_later(wait, self._wake_later, source)

    def _wake_later(self, source: str) -> None:
        self._planned.discard(source)
        self._last[source] = self._now()
        self._wake(source)
