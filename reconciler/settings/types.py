"""What settings can say, as types; defaults are those of the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from reconciler.model.drift_policy import DriftPolicy


class Credentials(msgspec.Struct, frozen=True, rename="camel"):
    """How to log in to a repository; files, never the secrets themselves."""

    username: str = ""
    token_file: Path | None = None
    key_file: Path | None = None
    known_hosts: Path | None = None
    allow_insecure: bool = False


class VerifySettings(msgspec.Struct, frozen=True, rename="camel"):
    """What has to be signed, and the files that say by whom."""

    signed: Literal["commit", "history", "tag"] = "commit"
    allowed_signers: Path | None = None
    revoked_keys: Path | None = None
    gpg_keyring: Path | None = None


class StatusSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How what was done is written back; ``interval`` in seconds."""

    branch: str = "reconciler/status"
    interval: float = 30.0
    push: bool = True


class SourceSecretSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What the secrets of one source may lead to on this host; None where the settings leave it to the default."""

    directory: Path | None = None
    credentials: tuple[str, ...] | None = None


class SourceSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A branch, tag or commit of a repository: exactly one of the three is not empty. Times in seconds."""

    name: str
    url: str
    branch: str = ""
    tag: str = ""
    commit: str = ""
    path: str = "."
    interval: float = 30.0
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    allow_rewrite: bool = False
    read_only: bool = False
    timeout: float = 60.0
    follow_redirects: bool = False
    credentials: Credentials = Credentials()
    verify: VerifySettings | None = None
    secrets: SourceSecretSettings = SourceSecretSettings()
    status: StatusSettings = StatusSettings()

    @property
    def local(self) -> bool:
        """Whether the repository is a path on this machine, to be opened in place."""
        return is_local(self.url)


class LocationSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Which engine works at a location; ``runtime`` is what runs containers where that is ``host``."""

    engine: str
    runtime: str = "process"


class HostSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How the host engine treats this machine; ``log_budget`` in MiB a location, ``log_retention`` in seconds."""

    termination_scale: float = 1.0
    log_budget: int = 1024
    log_retention: float = 604_800.0
    first_port: int = 20_000
    last_port: int = 31_999
    default_user: str = "nobody"
    pids_limit: int = 2048


class RetrySettings(msgspec.Struct, frozen=True, rename="camel"):
    """When a failed step is tried again; ``base`` and ``cap`` in seconds."""

    base: float = 1.0
    cap: float = 600.0
    attempts: int = 3


class PruneSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Whether and how much a run, and all runs of an hour, may delete by themselves."""

    enabled: bool = True
    count: int = 10
    percent: float = 20.0
    hourly_count: int = 20
    hourly_percent: float = 40.0
    kinds: dict[str, int] = {}


class SecretSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What opens encrypted secrets, what plain ones are, and the directory for files of the only source."""

    identity: Path | None = None
    policy: Literal["any", "encrypted-only"] = "any"
    directory: Path = Path("/etc/reconciler/secrets")


class EventSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How many events are kept."""

    keep: int = 10_000


class LogSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How the log looks."""

    format: Literal["auto", "console", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """Everything that an operator decides. ``stale`` and ``approval_lasts`` in seconds."""

    org: str
    sources: tuple[SourceSettings, ...]
    state: Path = Path("/var/lib/reconciler")
    readers: str = ""
    scheme: str = "platform"
    endpoint_domain: str = "platform.local"
    external: tuple[str, ...] = ()
    on_invalid: Literal["refuse", "skip"] = "refuse"
    parallel: int = 16
    retry: RetrySettings = RetrySettings()
    prune: PruneSettings = PruneSettings()
    approval: Literal["never", "deletes", "always"] = "never"
    approval_lasts: float = 86_400.0
    stale: float = 600.0
    drift: DriftPolicy = DriftPolicy()
    secrets: SecretSettings = SecretSettings()
    events: EventSettings = EventSettings()
    locations: dict[str, LocationSettings] = {}
    host: HostSettings = HostSettings()
    log: LogSettings = LogSettings()


def is_local(url: str) -> bool:
    """Whether ``url`` is a path on this machine: no scheme, and no ``host:`` before the first slash."""
    return "://" not in url and ":" not in url.partition("/")[0]
