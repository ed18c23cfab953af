"""The lives of accounts: a credential is void once its account is deleted, also if another one gets the name.

The life of an account is when its resource was first applied, in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.model.key import Kind
from reconciler.records.database import Database

LifeOf = Callable[[str], float | None]
"""Returns the life of the resource with a key such as ``serviceaccount/ci``; None if it is not applied."""

ACCOUNT_PREFIX, USER_PREFIX, AGENT_PREFIX = (f"{kind}/" for kind in (Kind.SERVICEACCOUNT, Kind.USER, Kind.AGENT))
IMPERSONATED = "impersonated by "
"""How the credential of a session begins that somebody has in the name of a user; the principal follows."""


def no_life(_: str) -> float | None:
    """The lives for who only reads the audit log: none."""
    return None


def account_key(name: str) -> str:
    """The key of the service account ``name``."""
    return f"{ACCOUNT_PREFIX}{name}"


def end_former_lives(database: Database, life_of: LifeOf) -> None:
    """Delete credentials of service accounts and agents that ended.

    A token of an agent without a life was made before the agent was applied: it is bound to the one that is.
    Raises RecordsError.
    """
    _end_keys(database, life_of)
    _end_sessions(database, life_of)
    _end_agents(database, life_of)


def forget_principal(database: Database, principal: str) -> None:
    """End the sessions that ``principal`` has in the names of others, and forget the answers to its requests."""
    database.write("DELETE FROM sessions WHERE credential = ?", (IMPERSONATED + principal,))
    database.write("DELETE FROM answers WHERE caller = ?", (principal,))


def _end_keys(database: Database, life_of: LifeOf) -> None:
    for account, life in database.all("SELECT DISTINCT account, life FROM keys"):
        if life is None or life != life_of(account_key(account)):
            sql = "DELETE FROM keys WHERE account = ? AND life IS ?"
            if database.write(sql, (account, life)).rowcount:
                forget_principal(database, account_key(account))


def _end_sessions(database: Database, life_of: LifeOf) -> None:
    sql = "SELECT DISTINCT principal, life FROM sessions WHERE login = '' AND principal LIKE ?"
    for principal, life in database.all(sql, (f"{ACCOUNT_PREFIX}%",)):
        if life is None or life != life_of(principal):
            database.write("DELETE FROM sessions WHERE principal = ? AND life IS ?", (principal, life))
            forget_principal(database, principal)


def _end_agents(database: Database, life_of: LifeOf) -> None:
    for name, life in database.all("SELECT name, life FROM agents"):
        present = life_of(f"{AGENT_PREFIX}{name}")
        if life is None and present is not None:
            database.write("UPDATE agents SET life = ? WHERE name = ?", (present, name))
        elif life != present:
            database.write("DELETE FROM agents WHERE name = ?", (name,))
