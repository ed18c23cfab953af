"""Messages for people outside of the terminal: plain values, which each channel puts into its own form."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.model.finding import Finding
from reconciler.notifications.severity import Severity


class EventType(StrEnum):
    """What a message is about; rules of the settings name these."""

    RUN = "run"
    """A commit: it waits, is applied, was applied, or was not."""
    REFUSED = "refused"
    """A revision with errors: nothing of it is applied."""
    APPROVAL = "approval"
    """Steps of a plan wait for an approval."""
    HEALTH = "health"
    """A resource is unhealthy, or healthy again."""
    DRIFT = "drift"
    """A location differs from what was applied."""
    VOLUME = "volume"
    """A volume is nearly full."""
    CERTIFICATE = "certificate"
    """A certificate expires, or cannot be renewed."""
    CRON = "cron"
    """An execution of a cron workload failed."""
    DAEMON = "daemon"
    """The daemon itself: its sources, its disk, its backups."""
    DIGEST = "digest"
    """What happened in a day."""
    TEST = "test"
    """Somebody tries a rule."""


class State(StrEnum):
    """How far the thing is that a message is about; it only moves down this list."""

    NONE = "none"
    """It is no process: a fact, which a later message does not change."""
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"
    SUPERSEDED = "superseded"
    """Something newer took its place before it was done; for example, a commit before the one that was applied."""

    @property
    def is_final(self) -> bool:
        """Whether the thing has ended."""
        return self in (State.SUCCESS, State.FAILURE, State.SUPERSEDED)


class MessageResource(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One resource of a message: its key as text, and what happens to it.

    ``action`` is the one of its step (such as ``create``) or empty, ``location`` where that is, ``reason`` a CamelCase
    word such as ``Applied``, and ``message`` a sentence of others: unescaped, without secrets.
    """

    key: str
    action: str = ""
    location: str = ""
    reason: str = ""
    message: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What one receiver is told about one thing. All texts are plain, unescaped, and without secrets.

    ``id`` is the key of the thing, and stays equal while it proceeds: it has the plan digest of a run, or the condition
    of a resource and its transition. Of two messages with one ``id`` the one with the larger ``sequence`` is the newer,
    and takes the place of the other. ``title`` is one line, and so is each paragraph of ``lines``. ``counts`` are by
    word, such as ``{"created": 2, "failed": 1}``. ``resources`` and ``findings`` are the first ones;
    ``left_out`` counts the others. ``digest`` is the one of the plan, in full; ``link`` a URL of our page, or empty;
    ``at`` is in seconds since the epoch.

    ``source`` is the name of the source, ``revision`` its revision as ``main@sha1:…``, ``commit`` the full id in that:
    all are empty for what belongs to no source. ``since`` is when the source came to the commit, 0 for its first one: a
    rollback comes to a commit again. A recovery has the severity of what it ends, and the state ``success``.
    With ``may_repeat``, an earlier try was cut off, and its receiver may have the message already.
    """

    id: str
    sequence: int
    event: EventType
    state: State = State.NONE
    severity: Severity = Severity.INFO
    title: str
    at: float
    source: str = ""
    revision: str = ""
    commit: str = ""
    since: float = 0.0
    lines: tuple[str, ...] = ()
    resources: tuple[MessageResource, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: int = 0
    counts: dict[str, int] = {}
    digest: str = ""
    link: str = ""
    may_repeat: bool = False
