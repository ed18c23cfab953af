"""Registration tokens of agents, and what agents report of themselves."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import NamedTuple

from reconciler.access.lives import LifeOf, no_life
from reconciler.access.tokens import SECRET_BYTES, hash_of
from reconciler.model.key import Key, Kind
from reconciler.records.database import Database

AGENT_PREFIX = "ra_"
"""How registration tokens begin."""
_COLUMNS = "id, name, life, reported, report"


class AgentRegistration(NamedTuple):
    """The agent ``name`` with the ``id`` of its token, without the token; ``report`` is JSON, b"" before the first.

    ``life`` is when the resource of the name was created that the token is for, None before it is applied: a later
    resource of the same name needs a token of its own. Times are seconds since the epoch.
    """

    id: str
    name: str
    life: float | None
    reported: float | None
    report: bytes


class Agents:
    """The registrations of agents. Methods raise RecordsError."""

    def __init__(self, database: Database, now: Callable[[], float], life_of: LifeOf = no_life) -> None:
        self._db = database
        self._now = now
        self._life_of = life_of

    def issue(self, name: str) -> tuple[AgentRegistration, str]:
        """A new token of the agent ``name``, which is not stored; the former one ends."""
        life = self._life_of(str(Key(Kind.AGENT, "", name)))
        registration = AgentRegistration(secrets.token_hex(8), name, life, None, b"")
        text = f"{AGENT_PREFIX}{registration.id}.{secrets.token_urlsafe(SECRET_BYTES)}"
        sql = "INSERT OR REPLACE INTO agents VALUES (?, ?, ?, ?, ?, NULL, ?)"
        self._db.write(sql, (name, registration.id, hash_of(text), self._now(), life, b""))
        return registration, text

    def find(self, name: str) -> AgentRegistration | None:
        """The registration of the agent ``name``; None if it never got a token."""
        row = self._db.one(f"SELECT {_COLUMNS} FROM agents WHERE name = ?", (name,))
        return AgentRegistration(*row) if row else None

    def owner(self, text: str) -> AgentRegistration | None:
        """The registration whose token is ``text``; None if it is unknown, or another one replaced it."""
        name = text.removeprefix(AGENT_PREFIX).partition(".")[0]
        row = self._db.one(f"SELECT {_COLUMNS}, hash FROM agents WHERE id = ?", (name,))
        if row is None or not hmac.compare_digest(row[5], hash_of(text)):
            return None
        return AgentRegistration(*row[:5])

    def named_by(self, text: str) -> str:
        """The key of the agent that the token ``text``, valid or not, names by its id; "" if it names none."""
        name = text.removeprefix(AGENT_PREFIX).partition(".")[0] if text.startswith(AGENT_PREFIX) else ""
        agent = self._db.value("SELECT name FROM agents WHERE id = ?", (name,))
        return str(Key(Kind.AGENT, "", agent)) if agent is not None else ""

    def bind(self, registration: AgentRegistration, life: float) -> None:
        """Bind the token to the resource that was created at ``life``."""
        self._db.write("UPDATE agents SET life = ? WHERE id = ?", (life, registration.id))

    def record_report(self, name: str, report: bytes) -> None:
        """Record what the agent ``name`` reports now."""
        self._db.write("UPDATE agents SET report = ?, reported = ? WHERE name = ?", (report, self._now(), name))
