"""The tree of expected errors; any other error is a bug, which becomes an InternalError where it is contained.

ReconcilerError
├── UsageError            the command line or the settings ask for something impossible (exit 2)
│   ├── SettingsError       the settings have faults, each with its place; defined in settings
│   └── StateLostError      the state directory was deleted or replaced under the process that holds it
├── RefusedError          a rule forbids it: findings, a protected resource, an unknown digest (exit 1)
│   └── NotFoundError       no such source, resource, GVC or rule (exit 1)
├── LockedError           another daemon holds the state directory
├── RecordsError          the records cannot be opened, are newer than this program, or cannot be written
│   ├── DiskFull            the disk of the records is full; work continues when it has room
│   └── CorruptRowError     no reconciler wrote this row of the records
├── SourceError           Git cannot deliver; never a reason to delete
│   ├── SourceUnreachable   the remote does not answer in time
│   ├── SourceNotFound          the repository, branch, tag, commit or path does not exist
│   ├── SourceEmpty         the path holds no manifest at all
│   ├── SourceRewritten     the branch moved to a commit that does not contain the last one
│   └── SourceUnverified    the commit or tag has no signature that the settings trust
├── EngineError           a location refused or failed a step; ``retry`` says whether trying again can help
└── InternalError         a bug of this program, contained; the rest continues
"""

from __future__ import annotations

from reconciler.reasons import Reason


class ReconcilerError(Exception):
    """An expected failure: ``reason`` is for conditions and programs, ``str()`` is for people."""

    reason: Reason = Reason.FAILED


class UsageError(ReconcilerError):
    """The command line or the settings ask for something impossible."""

    reason = Reason.INVALID_SETTINGS


class RefusedError(ReconcilerError):
    """A rule forbids it; the message names the rule and a way out."""

    reason = Reason.REFUSED


class NotFoundError(RefusedError):
    """No such thing; the message has the nearest name, or all that exist."""

    reason = Reason.NOT_FOUND


class LockedError(ReconcilerError):
    """Another process holds the state directory."""

    reason = Reason.LOCKED


class StateLostError(UsageError):
    """The state directory, or the lock in it, was deleted or replaced under the process that holds it.

    A new start would find no state, so the exit code keeps the service manager from restarting.
    """

    reason = Reason.STATE_LOST


class RecordsError(ReconcilerError):
    """The records cannot be opened or written, or were made by a newer program."""

    reason = Reason.RECORDS_UNAVAILABLE


class DiskFull(RecordsError):
    """The disk of the records is full; what was committed is safe."""

    reason = Reason.DISK_FULL


class CorruptRowError(RecordsError):
    """The row ``name`` (a key, or a number) of ``table`` was not written by a reconciler."""

    reason = Reason.RECORDS_CORRUPT

    def __init__(self, table: str, name: object) -> None:
        super().__init__(
            f"the records hold a row that no reconciler wrote (table {table}, row {str(name)[:100]!r}): stop the "
            "daemon and restore a backup"
        )


class SourceError(ReconcilerError):
    """Git cannot provide the revision; applied resources stay applied."""

    reason = Reason.SOURCE_FAILED


class SourceUnreachable(SourceError):
    """The remote does not answer, refuses the credentials, or takes too long."""

    reason = Reason.SOURCE_UNREACHABLE


class SourceNotFound(SourceError):
    """The repository, branch, tag, commit or path does not exist, or no longer."""

    reason = Reason.SOURCE_NOT_FOUND


class SourceEmpty(SourceError):
    """The path of the source has no manifest: a mistake, never "delete everything"."""

    reason = Reason.SOURCE_EMPTY


class SourceRewritten(SourceError):
    """The branch moved to a commit that does not contain the last one; followed only with ``allowRewrite``."""

    reason = Reason.SOURCE_REWRITTEN


class PushConflict(SourceError):
    """The remote's ref moved meanwhile: fetch it, build on it, push again."""

    reason = Reason.PUSH_CONFLICT


class SourceUnverified(SourceError):
    """The commit or tag has no signature that the settings trust; nothing of it is read."""

    reason = Reason.SOURCE_UNVERIFIED


class EngineError(ReconcilerError):
    """A location refused or failed a step."""

    reason = Reason.ENGINE_FAILED

    def __init__(self, message: str, *, reason: Reason = Reason.ENGINE_FAILED, retry: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry = retry


class InternalError(ReconcilerError):
    """A bug of this program. ``kind`` is the type of the exception, ``place`` the code, ``trace`` the calls.

    It omits the text of the exception, which may hold secrets.
    """

    reason = Reason.INTERNAL_ERROR

    def __init__(self, kind: str, place: str, trace: str = "") -> None:
        super().__init__(f"{kind} at {place}; this is a bug in the reconciler: please report it")
        self.kind = kind
        self.place = place
        self.trace = trace
