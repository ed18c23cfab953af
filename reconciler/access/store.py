"""Credentials and the audit log: one SQLite file, which only the process of the API writes."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from reconciler.access.agents import Agents
from reconciler.access.audit_records import AuditRecords
from reconciler.access.hash_chain import START, ChainLink, broken_links, compute_chain_hash
from reconciler.access.lives import ACCOUNT_PREFIX, USER_PREFIX, LifeOf, account_key, end_former_lives, no_life
from reconciler.access.people import CLOCK_LEEWAY, People
from reconciler.access.rules import Caller
from reconciler.access.tokens import SECRET_BYTES, hash_of
from reconciler.clock import Clock
from reconciler.errors import RecordsError
from reconciler.records.database import Database
from reconciler.records.sql import time_of, time_parameters

FILE = "access.sqlite"
"""Name of the file in the state directory."""
KEY_PREFIX = "rk_"
SESSION_PREFIX = "rs_"
"""How credentials of this program begin, so that scanners find them where they do not belong."""
ANSWER_SECONDS = 86_400.0
"""How long the answer to a request with an idempotency key is remembered."""
USE_SECONDS = 60.0
"""The last use of a key is recorded once within this time."""

_TABLES = (
    """CREATE TABLE keys (id TEXT PRIMARY KEY, account TEXT NOT NULL, hash BLOB NOT NULL, description TEXT NOT NULL,
        created REAL NOT NULL, "by" TEXT NOT NULL, expires REAL, used REAL, life REAL) WITHOUT ROWID""",
    "CREATE INDEX keys_account ON keys (account)",
    """CREATE TABLE sessions (hash BLOB PRIMARY KEY, principal TEXT NOT NULL, groups BLOB NOT NULL,
        created REAL NOT NULL, expires REAL NOT NULL, login TEXT NOT NULL, credential TEXT NOT NULL, life REAL)
        WITHOUT ROWID""",
    """CREATE TABLE audit (number INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL, hash BLOB NOT NULL)""",
    """CREATE TABLE answers (caller TEXT, key TEXT, digest BLOB NOT NULL, request_id TEXT NOT NULL, at REAL NOT NULL,
        status INTEGER, body BLOB, PRIMARY KEY (caller, key)) WITHOUT ROWID""",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE users (name TEXT PRIMARY KEY, created REAL NOT NULL, invited_by TEXT NOT NULL,
        issuer TEXT NOT NULL, subject TEXT NOT NULL, last_login REAL, life REAL) WITHOUT ROWID""",
    """CREATE TABLE logins (id TEXT PRIMARY KEY, user TEXT NOT NULL, groups BLOB NOT NULL, created REAL NOT NULL,
        ends REAL NOT NULL, used REAL NOT NULL, refresh BLOB NOT NULL UNIQUE, former BLOB NOT NULL,
        rotated REAL NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX logins_user ON logins (user)",
    "CREATE INDEX logins_former ON logins (former)",
    """CREATE TABLE agents (name TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, hash BLOB NOT NULL, issued REAL NOT NULL,
        life REAL, reported REAL, report BLOB NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE audit_records (context TEXT, number INTEGER, record BLOB NOT NULL, hash BLOB NOT NULL,
        PRIMARY KEY (context, number)) WITHOUT ROWID""",
)

MIGRATIONS = (_TABLES,)
"""Statements by version; released ones are never edited."""

_BOOTSTRAP = "bootstrap"
_USED = b""


class ServiceKey(NamedTuple):
    """A key of a service account, without its secret. Times are seconds since the epoch, None: never."""

    id: str
    account: str
    description: str
    created: float
    by: str
    expires: float | None
    used: float | None


class LoginSession(NamedTuple):
    """Whom a session stands for, and the login that it belongs to ("": none)."""

    caller: Caller
    login: str


class AuditEntry(msgspec.Struct, frozen=True):
    """Who did what: ``credential`` names it without its secret, ``outcome`` is the HTTP status.

    ``at`` is seconds since the epoch; ``target`` the path of the request. In a flood of refusals, an entry stands for
    ``count`` of them, and describes the last.
    """

    at: float
    principal: str
    credential: str
    address: str
    action: str
    target: str
    request_id: str
    outcome: int
    message: str = ""
    count: int = 1


class AuditRow(NamedTuple):
    """An entry with its number and the hash that chains it to the one before."""

    number: int
    entry: AuditEntry
    hash: str


class StoredAnswer(NamedTuple):
    """The answer to a request with an idempotency key; ``status`` is None while it is being made, or after a crash."""

    digest: bytes
    request_id: str
    status: int | None
    body: bytes | None


class AccessStore:
    """Keys of service accounts, sessions, and the audit log. Methods raise RecordsError."""

    def __init__(self, database: Database, clock: Clock, life_of: LifeOf = no_life) -> None:
        now = clock.now
        self._db = database
        self._now = now
        self._expiry = clock.expiry
        self._life_of = life_of
        self.people = People(database, clock, life_of)
        self.agents = Agents(database, now, life_of)
        self.audit_records = AuditRecords(database)

    @classmethod
    def open(cls, state: Path, clock: Clock, life_of: LifeOf = no_life, *, read_only: bool = False) -> Self:
        """Open the file in the directory ``state``; create it if it is missing, unless ``read_only``.

        ``life_of`` tells the lives of the accounts that exist.
        """
        return cls(Database.open(state / FILE, MIGRATIONS, read_only=read_only), clock, life_of)

    def end_former_lives(self) -> None:
        """Delete the credentials of accounts that no longer exist."""
        with self._db.transaction():
            end_former_lives(self._db, self._life_of)
            self.people.end_former_lives()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add_key(self, account: str, description: str, by: str, expires: float | None) -> tuple[ServiceKey, str]:
        """A new key of the service account ``account``, and its text, which is not stored."""
        name = secrets.token_hex(6)
        text = f"{KEY_PREFIX}{name}.{secrets.token_urlsafe(SECRET_BYTES)}"
        now = self._now()
        row = (name, account, hash_of(text), description, now, by, expires, self._life_of(account_key(account)))
        self._db.write("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)", row)
        return ServiceKey(name, account, description, now, by, expires, None), text

    def keys(self, account: str) -> list[ServiceKey]:
        """The keys of ``account``, oldest first; those that expired too, and none of an earlier account of the name."""
        sql = """SELECT id, account, description, created, "by", expires, used FROM keys WHERE account = ? AND life = ?
            ORDER BY created, id"""
        return [ServiceKey(*row) for row in self._db.all(sql, (account, self._life_of(account_key(account))))]

    def revoke_key(self, account: str, name: str) -> bool:
        """Delete the key ``name`` of ``account``: the next request with it is refused. False if there is none."""
        return self._db.write("DELETE FROM keys WHERE account = ? AND id = ?", (account, name)).rowcount > 0

    def key_account(self, text: str) -> tuple[str, str] | None:
        """The service account of the key ``text`` and the id of the key.

        None if it is unknown or has expired, or if the account that it was made for was deleted.
        """
        name = text.removeprefix(KEY_PREFIX).partition(".")[0]
        row = self._db.one("SELECT account, hash, expires, used, life FROM keys WHERE id = ?", (name,))
        if row is None or not hmac.compare_digest(row[1], hash_of(text)):
            return None
        if row[4] is None or row[4] != self._life_of(account_key(row[0])):
            return None
        now = self._now()
        if row[2] is not None and row[2] <= now:
            return None
        if row[3] is None or not 0.0 <= now - row[3] < USE_SECONDS:
            self._db.write("UPDATE keys SET used = ? WHERE id = ?", (now, name))
        return str(row[0]), name

    def has_key(self, account: str, name: str) -> bool:
        """Whether the key ``name`` of ``account`` exists and has not expired."""
        now = self._now()
        return any(key.id == name and (key.expires is None or key.expires > now) for key in self.keys(account))

    def account_named_by(self, credential: str) -> str:
        """The account that a refused ``credential`` names by its id, "" if it names none."""
        if credential.startswith(KEY_PREFIX):
            name = credential.removeprefix(KEY_PREFIX).partition(".")[0]
            account = self._db.value("SELECT account FROM keys WHERE id = ?", (name,))
            return account_key(account) if account is not None else ""
        return self.agents.named_by(credential)

    def add_session(self, caller: Caller, seconds: float, login: str = "") -> str:
        """A token that stands for ``caller`` for ``seconds``, and no longer than ``login``; only its hash is stored."""
        text = f"{SESSION_PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}"
        now = self._now()
        groups = msgspec.json.encode(sorted(caller.groups))
        with self._db.transaction():
            over = f"DELETE FROM sessions WHERE expires <= {time_of('created')}"
            self._db.write(over, time_parameters(self._expiry()))
            life = None if login else self._principal_life(caller.principal)
            row = (hash_of(text), caller.principal, groups, now, now + seconds, login, caller.credential, life)
            self._db.write("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return text

    def session(self, text: str) -> LoginSession | None:
        """The session with the token ``text``; None if it is unknown, has expired, or its account was deleted.

        One from the future began while the clock was ahead, so it would last too long.
        Whether the login of a session still counts is for the caller to find out.
        """
        sql = """SELECT principal, groups, login, credential, life FROM sessions
            WHERE hash = ? AND expires > ? AND created <= ?"""
        row = self._db.one(sql, (hash_of(text), self._now(), self._expiry().latest + CLOCK_LEEWAY))
        if row is None or not (row[2] or self._lives(row[0], row[4])):
            return None
        groups = frozenset(msgspec.json.decode(row[1], type=list[str]))
        return LoginSession(Caller(str(row[0]), groups, row[3] or "session"), str(row[2]))

    def _lives(self, principal: str, life: float | None) -> bool:
        """Whether the account ``principal`` is the one that had the ``life`` when its session began.

        Some have no account: the first superuser, who is there for an hour.
        """
        if life is None and principal.startswith(ACCOUNT_PREFIX):
            return False
        return life == self._principal_life(principal)

    def _principal_life(self, principal: str) -> float | None:
        life = self._life_of(principal)
        if life is None and principal.startswith(USER_PREFIX):
            person = self.people.find(principal.removeprefix(USER_PREFIX))
            return person.created if person is not None else None
        return life

    def end_session(self, text: str) -> bool:
        """End the session with the token ``text``, and the login that it belongs to; returns whether there was one."""
        with self._db.transaction():
            login = self._db.value("SELECT login FROM sessions WHERE hash = ?", (hash_of(text),))
            if login:
                self.people.end(login)
            return self._db.write("DELETE FROM sessions WHERE hash = ?", (hash_of(text),)).rowcount > 0

    def make_bootstrap(self, publish: Callable[[str], None]) -> None:
        """If there has never been one, pass a new bootstrap token to ``publish``, and store its hash after that."""
        if self._db.one("SELECT 1 FROM facts WHERE name = ?", (_BOOTSTRAP,)) is None:
            text = secrets.token_urlsafe(SECRET_BYTES)
            publish(text)
            self._db.write("INSERT INTO facts VALUES (?, ?)", (_BOOTSTRAP, hash_of(text)))

    def use_bootstrap(self, text: str) -> bool:
        """Whether ``text`` is the bootstrap token; it is void from then on."""
        sql = "UPDATE facts SET value = ? WHERE name = ? AND value = ?"
        return self._db.write(sql, (_USED, _BOOTSTRAP, hash_of(text))).rowcount > 0

    def begin_answer(self, caller: str, key: str, digest: bytes, request_id: str) -> StoredAnswer | None:
        """The answer to the earlier request of ``caller`` with ``key``; None if this is the first, which begins now."""
        expiry = self._expiry()
        with self._db.transaction():
            over = f"DELETE FROM answers WHERE at + ? < {time_of('at')}"
            self._db.write(over, (ANSWER_SECONDS, *time_parameters(expiry)))
            row = self._db.one(
                "SELECT digest, request_id, status, body FROM answers WHERE caller = ? AND key = ?", (caller, key)
            )
            if row is not None:
                return StoredAnswer(*row)
            values = (caller, key, digest, request_id, expiry.latest)
            self._db.write("INSERT INTO answers VALUES (?, ?, ?, ?, ?, NULL, NULL)", values)
        return None

    def end_answer(self, caller: str, key: str, status: int, body: bytes) -> None:
        """Record the answer to the request of ``caller`` with ``key``."""
        sql = "UPDATE answers SET status = ?, body = ? WHERE caller = ? AND key = ?"
        self._db.write(sql, (status, body, caller, key))

    def append_audit(self, entries: Iterable[AuditEntry]) -> None:
        """Append ``entries``, all or none; the hash of each covers the hash of the entry before."""
        with self._db.transaction():
            last = self._db.value("SELECT hash FROM audit ORDER BY number DESC LIMIT 1") or START
            for entry in entries:
                content = msgspec.json.encode(entry)
                last = compute_chain_hash(last, content)
                self._db.write("INSERT INTO audit (entry, hash) VALUES (?, ?)", (content.decode(), last))

    def audit(self, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """At most ``limit`` entries after the number ``after``, in order."""
        sql = "SELECT number, entry, hash FROM audit WHERE number > ? ORDER BY number LIMIT ?"
        rows = self._db.all(sql, (after, limit))
        return [AuditRow(row[0], msgspec.json.decode(row[1], type=AuditEntry), row[2].hex()) for row in rows]

    def last_audit(self) -> AuditRow | None:
        """The newest entry."""
        number = self._db.value("SELECT max(number) FROM audit")
        return self.audit(number - 1, 1)[0] if number else None

    def audit_hash(self, number: int) -> str | None:
        """The hash of the entry ``number``; None if there is none."""
        digest = self._db.value("SELECT hash FROM audit WHERE number = ?", (number,))
        return digest.hex() if digest is not None else None

    def broken_audit(self) -> Iterator[int]:
        """Numbers of entries that do not follow from those before: changed, inserted, or after a removed one."""
        rows = self._db.stream("SELECT number, entry, hash FROM audit ORDER BY number")
        return broken_links(ChainLink(number, entry.encode(), digest) for number, entry, digest in rows)


def contexts_with_records(state: Path, names: Iterable[str]) -> frozenset[str]:
    """Those of the audit contexts ``names`` that have records. Raises RecordsError."""
    if not (path := state / FILE).exists():
        return frozenset()
    with closing(Database.open(path, MIGRATIONS, read_only=True)) as database:
        records = AuditRecords(database)
        return frozenset(name for name in names if records.has_any(name))


def last_audit_link(state: Path) -> tuple[int, str] | None:
    """Number and hash of the newest entry of the audit log in the directory ``state``.

    None if it has none, or cannot be read: what says so are the API, which writes it, and `reconciler doctor`.
    """
    if not (path := state / FILE).exists():
        return None
    try:
        with closing(Database.open(path, MIGRATIONS, read_only=True)) as database:
            row = database.one("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1")
    except RecordsError:
        return None
    return (int(row[0]), row[1].hex()) if row is not None else None
