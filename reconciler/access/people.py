"""People who log in at an identity provider: their users, and the logins that their sessions belong to."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from reconciler.access.lives import USER_PREFIX, LifeOf, forget_principal, no_life
from reconciler.access.tokens import SECRET_BYTES, hash_of
from reconciler.clock import Clock
from reconciler.model.key import Kind
from reconciler.records.database import Database
from reconciler.records.sql import time_of, time_parameters

REFRESH_PREFIX = "rr_"
"""How refresh tokens begin."""
USE_SECONDS = 60.0
"""The last use of a login is recorded once within this time."""
REUSE_SECONDS = 30.0
"""How long a refresh token that was replaced may be sent again without effect."""
CLOCK_LEEWAY = 60.0
"""Seconds by which the begin of a session may lie in the future: the clock is set back a little now and then."""
_COLUMNS = "name, created, invited_by, issuer, subject, last_login, life"
_REMEMBERED = 3600.0
"""How long a removal is remembered: longer than a login that has begun takes."""


class Person(NamedTuple):
    """A user who was invited or has logged in. Times are seconds since the epoch; ``last_login`` None: never.

    ``issuer`` and ``subject`` are those of the first login: the account at the provider that the user is. ``life`` is
    that of the manifest that declares them, None if none did: they are gone with it.
    """

    name: str
    created: float
    invited_by: str = ""
    issuer: str = ""
    subject: str = ""
    last_login: float | None = None
    life: float | None = None


class Login(NamedTuple):
    """A login of ``user``, with the groups that the provider named; it ends at ``ends``, in seconds since the epoch."""

    id: str
    user: str
    groups: tuple[str, ...]
    ends: float
    used: float


class People:
    """The users of people, and their logins. Methods raise RecordsError."""

    def __init__(self, database: Database, clock: Clock, life_of: LifeOf = no_life) -> None:
        self._db = database
        self._now = clock.now
        self._expiry = clock.expiry
        self._life_of = life_of
        self._removed: dict[str, float] = {}

    def find(self, name: str) -> Person | None:
        """The user ``name``; None if they were never invited and never logged in, or were removed since."""
        row = self._db.one(f"SELECT {_COLUMNS} FROM users WHERE name = ?", (name,))
        return Person(*row) if row and self._lives(Person(*row)) else None

    def every(self) -> list[Person]:
        """All users, by name."""
        people = (Person(*row) for row in self._db.all(f"SELECT {_COLUMNS} FROM users ORDER BY name"))
        return [person for person in people if self._lives(person)]

    def invite(self, name: str, by: str) -> bool:
        """Let ``name`` log in; returns whether they could not before."""
        with self._db.transaction():
            if self.find(name) is not None:
                return False
            self.remove(name)
            row = (name, self._now(), by, self._life_of(f"{USER_PREFIX}{name}"))
            self._db.write("INSERT INTO users VALUES (?, ?, ?, '', '', NULL, ?)", row)
        return True

    def remove(self, name: str) -> bool:
        """Remove the user ``name`` and end their logins and sessions; returns whether there was one.

        Sessions end too that they have in the names of others.
        """
        now = self._now()
        over = self._expiry()
        recent = {other: at for other, at in self._removed.items() if not over.is_over(at + _REMEMBERED, at)}
        self._removed = recent | {name: now}
        with self._db.transaction():
            self._db.write("DELETE FROM logins WHERE user = ?", (name,))
            self._db.write("DELETE FROM sessions WHERE principal = ?", (f"{USER_PREFIX}{name}",))
            forget_principal(self._db, f"{USER_PREFIX}{name}")
            return self._db.write("DELETE FROM users WHERE name = ?", (name,)).rowcount > 0

    def was_removed_since(self, name: str, at: float) -> bool:
        """Whether ``name`` was removed after the time ``at``: a login that began before does not count."""
        return self._removed.get(name, at) > at

    def end_former_lives(self) -> None:
        """Remove users whose manifest is gone, and bind those to their manifest who have one by now."""
        for row in self._db.all(f"SELECT {_COLUMNS} FROM users"):
            person = Person(*row)
            life = self._life_of(f"{USER_PREFIX}{person.name}")
            if person.life is None and life is not None:
                self._db.write("UPDATE users SET life = ? WHERE name = ?", (life, person.name))
            elif person.life != life:
                self.remove(person.name)

    def _lives(self, person: Person) -> bool:
        return person.life is None or person.life == self._life_of(f"{USER_PREFIX}{person.name}")

    def begin_login(self, person: Person, groups: Iterable[str], seconds: float) -> tuple[Login, str]:
        """Record that ``person`` logged in for ``seconds``; the login, and its refresh token, which is not stored."""
        now, refresh = self._now(), _new_token()
        login = Login(secrets.token_hex(8), person.name, tuple(sorted(groups)), now + seconds, now)
        with self._db.transaction():
            over = f"DELETE FROM logins WHERE ends <= {time_of('created')}"
            self._db.write(over, time_parameters(self._expiry()))
            if self.find(person.name) is None:
                self._db.write("DELETE FROM users WHERE name = ?", (person.name,))
            life = person.life if person.life is not None else self._life_of(f"{USER_PREFIX}{person.name}")
            self._db.write(
                "INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET issuer ="
                " excluded.issuer, subject = excluded.subject, last_login = excluded.last_login, life = excluded.life",
                person._replace(last_login=now, life=life),
            )
            row = (
                login.id,
                login.user,
                msgspec.json.encode(login.groups),
                now,
                login.ends,
                now,
                hash_of(refresh),
                b"",
                now,
            )
            self._db.write("INSERT INTO logins VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return login, refresh

    def login(self, name: str) -> Login | None:
        """The login with the id ``name``; None if it was ended, has expired, or began while the clock was ahead."""
        sql = "SELECT id, user, groups, ends, used FROM logins WHERE id = ? AND ends > ? AND created <= ?"
        row = self._db.one(sql, (name, self._now(), self._expiry().latest + CLOCK_LEEWAY))
        return Login(row[0], row[1], msgspec.json.decode(row[2], type=tuple[str, ...]), *row[3:]) if row else None

    def use(self, login: Login) -> None:
        """Record a use of ``login``."""
        now = self._now()
        if not 0.0 <= now - login.used < USE_SECONDS:
            self._db.write("UPDATE logins SET used = ? WHERE id = ?", (now, login.id))

    def refresh(self, text: str) -> tuple[Login, str] | None:
        """The login of the refresh token ``text``, and the token that replaces it; None if it is not valid.

        A token that was replaced means that two clients have it, so it ends the login; but not within REUSE_SECONDS,
        in which two commands of one person may have sent it at once.
        """
        used, following, now = hash_of(text), _new_token(), self._now()
        sql = "DELETE FROM logins WHERE former = ? AND rotated <= ?"
        self._db.write(sql, (used, now - REUSE_SECONDS))
        login_id = self._db.value("SELECT id FROM logins WHERE refresh = ?", (used,))
        login = self.login(str(login_id)) if login_id is not None else None
        if login is None:
            return None
        sql = "UPDATE logins SET refresh = ?, former = ?, rotated = ? WHERE id = ?"
        self._db.write(sql, (hash_of(following), used, now, login.id))
        return login, following

    def end(self, name: str) -> None:
        """End the login with the id ``name``: its sessions and its refresh token."""
        self._db.write("DELETE FROM logins WHERE id = ?", (name,))


def person_fields(person: Person) -> dict[str, str]:
    """The fields that a manifest of the user could have, which queries see."""
    return {"kind": str(Kind.USER), "name": person.name, "email": person.name} | (
        {"idp": person.issuer} if person.issuer else {}
    )


def _new_token() -> str:
    return f"{REFRESH_PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}"
