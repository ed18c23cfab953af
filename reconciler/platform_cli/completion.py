"""Completion for the Tab key: words from the table, names from the server, and nothing where that is too slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.errors import ReconcilerError

SECONDS = 0.3
"""How long a completion waits for the server."""
_MOST = 200
PROFILE = "profile"


def complete_names(kind: str, options: Mapping[str, Any], incomplete: str) -> list[str]:
    """The names of resources of ``kind``, or of profiles, that begin with ``incomplete``.

    There are none if the server does not answer in time. ``options`` are the common ones of the call.
    """
    from urllib.parse import urlencode

    from reconciler.platform_cli.kinds import KINDS
    from reconciler.platform_cli.session import Session

    session = Session(options, seconds=SECONDS)
    try:
        if kind == PROFILE:
            return [name for name in session.profiles.profiles if name.startswith(incomplete)]
        if kind not in KINDS:
            return []
        path = f"{session.path(kind)}?{urlencode({'fields': 'name', 'limit': _MOST, 'namePrefix': incomplete})}"
        found = session.client.once(path, SECONDS)
        return sorted(each["name"] for each in found["items"] if each["name"].startswith(incomplete))
    except (ReconcilerError, KeyError, TypeError):
        return []
    finally:
        session.close()
