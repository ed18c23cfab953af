"""The tree of expected errors; any other error is a bug, and becomes an InternalError where it is contained.

ReconcilerError
├── UsageError            the command line or the settings ask for something impossible (exit 2)
│   ├── SettingsError       the settings have faults, each with its place (settings/loader.py)
│   └── StateLostError      the state directory was deleted or replaced under the process that holds it
├── RefusedError          a rule forbids it: findings, a protected resource, an unknown digest (exit 1)
│   ├── NotFoundError       no such source, resource, GVC or rule (exit 1)
│   ├── RevisionRefused     the commit of a change would have errors (changes/write.py)
│   ├── OverridesRefused    a run with overrides would break rules of manifests (engines/workload_commands.py)
│   └── EditConflictError   others changed the same field meanwhile (changes/edits.py)
├── LockedError           another daemon holds the state directory
├── RecordsError          the records cannot be opened, are newer than this program, or cannot be written
│   ├── DiskFull            the disk of the records is full; work continues when it has room
│   └── CorruptRowError     no reconciler wrote this row of the records
├── SourceError           Git cannot deliver; never a reason to delete
│   ├── SourceUnreachable   the remote does not answer in time
│   │   └── PushBroken        the connection broke during a push, so the remote may have taken it
│   ├── SourceNotFound      the repository, branch, tag, commit or path does not exist
│   ├── SourceEmpty         the path holds no manifest at all
│   ├── SourceRewritten     the branch moved to a commit that does not contain the last one
│   ├── StatusBranchTaken   another daemon writes the status branch
│   ├── PushConflict        the remote's ref moved since it was read
│   ├── PushRefused         the remote declines a push, such as one to a protected branch
│   └── SourceUnverified    the commit or tag has no signature that the settings trust
├── EngineError           a location refused or failed a step; ``retry`` says whether trying again can help
│   ├── ForeignMemberError  a container of others uses a replica's network (engines/host/runtimes/podman/sweep.py)
│   ├── MistypedSpec        the spec of a command has not the form of the command (engines/command_spec.py)
│   ├── PodmanError         Podman refuses a request, or does not answer (engines/host/runtimes/podman/api/answers.py)
│   ├── ClusterError        a cluster refuses a request, or does not answer (engines/kubernetes/client/errors.py)
│   └── ImageError          an image cannot be provided (engines/workload/image_reference.py)
├── ProbeError            an invalid response to a probe (engines/host/probes/response.py)
├── ScrapeError           the metrics of a container cannot be used (engines/host/metrics/exposition.py)
├── CertificateError    a certificate cannot be used (engines/host/dataplane/certificates/pem.py)
├── HostSecretError       a file of this host cannot be used as a secret (secrets/host_files.py)
├── ApiError            the HTTP API refuses a request, or does not answer (platform_cli/refusals.py)
├── InputError          a document for the platform command cannot be read (platform_cli/documents.py)
├── SendError           a message is not delivered (notifications/channels/channel.py)
│   ├── SendRefused       the receiver will never take it (notifications/channels/channel.py)
│   │   └── ForgeRefusal      a forge refuses a request (notifications/forges/client.py)
│   └── SendFailed        it may get through later (notifications/channels/channel.py)
│       └── AnswerTooLarge    a forge answers with too much (notifications/forges/client.py)
├── UnreadableFileError   a file that a file of a project names cannot be read
│   ├── MissingFileError  it is not there
│   └── OutsideFileError  it is outside of the directory of the project
├── ParseError            a text does not have the required form
│   ├── CronError           of a schedule (model/cron.py)
│   ├── LinkError           of a link to a resource (manifests/links.py)
│   ├── IrregularTextError  of a file whose documents can be changed one by one (changes/text.py)
│   ├── QueryError          of a query for logs (logql/tokens.py)
│   ├── ExpressionError     of a regular expression in a query (logql/regex.py)
│   ├── InterpolationError  of a text with variables in a compose file (convert/compose/interpolation.py)
│   ├── EnvFileError        of a line of an env file (convert/compose/dotenv.py)
│   ├── ProxyHeaderError    of the header of a proxy's connection (api/proxies/protocol.py)
│   └── LimitReached        a file exceeds a limit of the reader and is read no further (documents/fault_sink.py)
│       └── FormFault         it is not JSON, as its name says (documents/fault_sink.py)
├── EncryptionError       a secret cannot be encrypted or decrypted
│   ├── SecretFileError     a file cannot be encrypted, decrypted or changed (sops/encrypt.py)
│   ├── MetadataError       the mapping ``sops`` is not as SOPS writes it (sops/metadata.py)
│   ├── TamperedValue       a value is not the one that was encrypted there (sops/decrypt.py)
│   ├── DecryptionFailed    a key does not decrypt a value (sops/cipher.py)
│   ├── KeyringError        a text is no identity or recipient of age (sops/keys.py)
│   └── NoUsableKey         no identity decrypts the key of a document (sops/keys.py)
└── InternalError         a bug of this program, contained; the rest continues

A class with a file behind it is defined there, the others here. Exceptions for control flow are not errors: they are
private to the module that raises and catches them.
"""

from __future__ import annotations

from reconciler.reasons import Reason


class ReconcilerError(Exception):
    """An expected failure: ``reason`` is for conditions and programs, ``str()`` for people."""

    reason: Reason = Reason.FAILED


class UsageError(ReconcilerError):
    """The command line or the settings ask for something impossible."""

    reason = Reason.INVALID_SETTINGS


class RefusedError(ReconcilerError):
    """A rule forbids it; the message names the rule and a remedy."""

    reason = Reason.REFUSED


class NotFoundError(RefusedError):
    """The object does not exist; the message has the nearest name, or all names."""

    reason = Reason.NOT_FOUND


class UnreadableFileError(ReconcilerError):
    """A file that a file of a project names cannot be read; the message is the reason, such as `it is a directory`."""

    rule = "convert-file"
    suggestion = ""


class MissingFileError(UnreadableFileError):
    """A file that a file of a project names, or may have beside it, is not there."""


class OutsideFileError(UnreadableFileError):
    """A file is outside of the directory of the project, so it is not read."""

    rule = "convert-outside"
    suggestion = "move it into that directory, or read it with --allow-outside if you trust the project"


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
    """The disk of the records is full; committed data is safe."""

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
    """The repository, branch, tag, commit or path does not exist, or no longer exists."""

    reason = Reason.SOURCE_NOT_FOUND


class SourceEmpty(SourceError):
    """The path of the source has no manifest: a mistake, never "delete everything"."""

    reason = Reason.SOURCE_EMPTY


class SourceRewritten(SourceError):
    """The branch moved to a commit that does not contain the last one; followed only with ``allowRewrite``."""

    reason = Reason.SOURCE_REWRITTEN


class StatusBranchTaken(SourceError):
    """Another daemon writes the status branch: nothing is written over it."""

    reason = Reason.STATUS_BRANCH_TAKEN


class PushConflict(SourceError):
    """The remote's ref moved meanwhile: fetch it, build on it, push again."""

    reason = Reason.PUSH_CONFLICT


class PushBroken(SourceUnreachable):
    """The connection broke during a push, or the remote takes too long: it may have taken the commit, or do so yet."""


class PushRefused(SourceError):
    """The remote declines a push: a hook or a protected branch; the message has its words."""


class SourceUnverified(SourceError):
    """The commit or tag has no signature that the settings trust; nothing of it is read."""

    reason = Reason.SOURCE_UNVERIFIED


class EngineError(ReconcilerError):
    """A location refused or failed a step.

    ``retry``: a later try may work. ``away``: the location as a whole is known not to answer, so that one at once is of
    no use.
    """

    reason = Reason.ENGINE_FAILED

    def __init__(
        self, message: str, *, reason: Reason = Reason.ENGINE_FAILED, retry: bool = True, away: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry = retry
        self.away = away


class ParseError(ReconcilerError):
    """A text does not have the required form; the message names the fault."""


class EncryptionError(ReconcilerError):
    """A secret cannot be encrypted or decrypted; no message contains its values or keys."""


class InternalError(ReconcilerError):
    """A bug of this program. ``kind`` is the type of the exception, ``place`` the code, ``trace`` the calls.

    It omits the text of the exception, which may hold secrets.
    """

    reason = Reason.INTERNAL_ERROR

    def __init__(self, kind: str, origin: str, trace: str = "") -> None:
        super().__init__(f"{kind} at {origin}; this is a bug in the reconciler: please report it")
        self.kind = kind
        self.place = origin
        self.trace = trace
