"""Completion for the Tab key: words from the table, names from the server, and nothing where that is too slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.errors import ReconcilerError
from reconciler.platform_cli.table import Row

SECONDS = 0.3
"""How long a completion waits for the server."""
_MOST = 200


def complete_names(row: Row, options: Mapping[str, Any], incomplete: str) -> list[str]:
    """The names of resources that begin with ``incomplete``; none if the server does not answer in time."""
    from urllib.parse import urlencode

    from reconciler.platform_cli.kinds import KINDS
    from reconciler.platform_cli.session import Session

    session = Session(options)
    if row.words[0] == "profile":
        return [name for name in session.profiles.profiles if name.startswith(incomplete)]
    kind = row.passed[0] if row.passed else ""
    if kind not in KINDS:
        return []
    try:
        path = f"{session.path(kind)}?{urlencode({'fields': 'name', 'limit': _MOST, 'namePrefix': incomplete})}"
        found = session.client.once(path, SECONDS)
        return sorted(each["name"] for each in found["items"] if each["name"].startswith(incomplete))
    except (ReconcilerError, KeyError, TypeError):
        return []
    finally:
        session.close()
