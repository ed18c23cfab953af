"""Causes of troubles: what a text names that several resources may share, or else the reason and the source."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reconciler.notifications.message import EventType
from reconciler.records.notifications.troubles import Trouble

MANY = "*"
"""The cause of troubles of very many causes, which begin together: they are one message."""
MOST_CAUSES = 5
"""The most causes that begin together and are a message each."""
BACKUPS = "backups"
"""The key of the one trouble that is about backups of the records, and its cause."""
MOST_CHARACTERS = 4_000
"""The characters of a text in which a cause is looked for."""
_NAMING = frozenset({EventType.HEALTH, EventType.CRON})
"""Events whose texts say why something does not run."""
_SHARED = re.compile(
    r"(?<![\w/.-])(?:secret|volumeset|identity|location|cloudaccount|domain|agent)/[a-z0-9][a-z0-9./-]{0,199}"
)
_IMAGE = re.compile(r'\bimage "?([A-Za-z0-9][\w.-]{0,200}(?:[:/@][\w.-]{1,200}){1,20})')


def find_cause(trouble: Trouble) -> str:
    """The cause of ``trouble``, such as ``secret/db`` or ``image/api:1.4``.

    Where the text names nothing that others may share, it is the reason with the source, such as ``Unhealthy@main``;
    a location or a source that fails does so for the reason alone, since many often fail at once.
    """
    kind = EventType(trouble.event)
    if trouble.key == BACKUPS:
        return BACKUPS
    if kind in _NAMING:
        text = trouble.message[:MOST_CHARACTERS]
        named = (match[0].rstrip("./-") for match in _SHARED.finditer(text))
        shared = next((name for name in named if name != trouble.key), "")
        if shared:
            return shared
        image = _IMAGE.search(text)
        if image is not None:
            return f"image/{image[1]}"
    return trouble.reason if kind is EventType.DAEMON else f"{trouble.reason}@{trouble.source}"


def is_shared(cause: str) -> bool:
    """Whether ``cause`` names a thing that resources of any source may share."""
    head, slash, _ = cause.partition("/")
    return bool(slash) and "@" not in head


def list_shared(causes: Iterable[str]) -> list[str]:
    """Those of ``causes`` that name a thing."""
    return [cause for cause in causes if is_shared(cause)]
