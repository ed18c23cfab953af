"""The settings as types; the defaults are those of the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from reconciler.model.drift_policy import DriftPolicy
from reconciler.settings.api import ApiSettings
from reconciler.settings.notifications import NotificationSettings


class Credentials(msgspec.Struct, frozen=True, rename="camel"):
    """How to log in to a repository: files that contain secrets, never the secrets themselves."""

    username: str = ""
    token_file: Path | None = None
    key_file: Path | None = None
    known_hosts: Path | None = None
    ca_file: Path | None = None
    allow_insecure: bool = False


class VerifySettings(msgspec.Struct, frozen=True, rename="camel"):
    """What must be signed, and the files with the trusted signers."""

    signed: Literal["commit", "history", "tag"] = "commit"
    allowed_signers: Path | None = None
    revoked_keys: Path | None = None
    gpg_keyring: Path | None = None


SERVICE_STATE = Path("/var/lib/reconciler")
"""The state directory of the service."""


class StatusSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How status is written back to Git; ``interval`` in seconds."""

    branch: str = "reconciler/status"
    interval: float = 30.0
    push: bool = True


class SourceSecretSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What the secrets of one source may use on this host; None for the default."""

    directory: Path | None = None
    credentials: tuple[str, ...] | None = None


class SourceSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A branch, tag or commit of a repository: exactly one of the three is not empty. Times in seconds.

    ``gvc`` is that of manifests that name none, where no directory decides it ("": that is an error).
    """

    name: str
    url: str
    branch: str = ""
    tag: str = ""
    commit: str = ""
    path: str = "."
    gvc: str = ""
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
        """Whether the repository is a path on this machine, which is opened in place."""
        return is_local(self.url)


class AcmeSettings(msgspec.Struct, frozen=True, rename="camel"):
    """An authority that issues certificates: the URL of its directory, and the address for its mails.

    ``ca_file`` has the certificates that it is checked by. ``dns_hook`` is the program with its arguments that sets and
    removes records of DNS for challenges.
    """

    directory: str
    email: str = ""
    ca_file: Path | None = None
    dns_hook: tuple[str, ...] = ()


class IngressSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Where a location takes requests by host name; ``proxy_protocol`` lists the proxies that announce their clients.

    Port 80 of a domain is ``http_port`` here, and 443 is ``https_port``. Certificates come from the directory
    ``certificates``, and from ``acme``.
    """

    addresses: tuple[str, ...] = ("0.0.0.0",)
    http_port: int = 80
    https_port: int = 443
    proxy_protocol: tuple[str, ...] = ()
    certificates: Path | None = None
    acme: AcmeSettings | None = None


class ClusterSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The Kubernetes cluster of a location, and how it is used.

    ``kubeconfig`` is None for the service account of the daemon's pod. ``allow_exec`` are the programs that it may run.
    ``instance`` names the owner of all objects, "" for the org. ``gateway`` is ``NAMESPACE/NAME``. ``networks`` are the
    ranges of pods, Services and nodes. ``requests`` are the most requests a second.
    """

    kubeconfig: Path | None = None
    context: str = ""
    allow_exec: tuple[str, ...] = ()
    instance: str = ""
    namespace_prefix: str = ""
    force_conflicts: tuple[str, ...] = ()
    gateway: str = ""
    ingress_class: str = ""
    issuer: str = ""
    networks: tuple[str, ...] = ()
    dns_namespaces: tuple[str, ...] = ("kube-system",)
    metrics_namespace: str = ""
    keda_namespace: str = ""
    requests: int = 500


class LocationSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The engine of a location; ``cluster`` is for the engine ``kubernetes``, the rest for the engine ``host``.

    ``ingress`` is None: host names are not served.
    """

    engine: str
    runtime: str = "auto"
    dataplane: str = "auto"
    ingress: IngressSettings | None = None
    cluster: ClusterSettings = ClusterSettings()


class HoldSettings(msgspec.Struct, frozen=True):
    """How many requests of a workload wait for a replica, and for how many seconds, before they are refused."""

    requests: int = 1000
    seconds: float = 30.0


class MetricsSettings(msgspec.Struct, frozen=True):
    """Where the metrics of workloads are served, as ``HOST:PORT`` ("": nowhere); ``budget`` in MiB per location."""

    address: str = ""
    budget: int = 64


class HostSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How the host engine uses this machine; ``log_budget`` in MiB per location, ``log_retention`` in seconds.

    ``volumes`` is the backend of new volumes, ``disk_reserve`` the percentage of the disk that they leave free,
    ``freeze_limit`` the seconds for which a snapshot may keep a replica from writing.
    """

    termination_scale: float = 1.0
    log_budget: int = 1024
    log_retention: float = 604_800.0
    first_port: int = 20_000
    last_port: int = 31_999
    first_service_port: int = 18_000
    last_service_port: int = 19_999
    hold: HoldSettings = HoldSettings()
    metrics: MetricsSettings = MetricsSettings()
    default_user: str = "nobody"
    pids_limit: int = 2048
    cron_starts: int = 16
    volumes: Literal["auto", "btrfs", "directory", "image-ext4", "image-xfs"] = "auto"
    disk_reserve: float = 5.0
    freeze_limit: float = 1.0


class RestrictionSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What containers of the ``workloads`` (patterns of GVC/NAME) may not do; capabilities are without ``CAP_``."""

    workloads: tuple[str, ...]
    read_only_root_filesystem: bool = False
    drop_capabilities: tuple[str, ...] = ()


class UserNamespaceSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The user namespaces of containers: ``host`` for none, or for those of ``host_users`` (patterns of GVC/NAME).

    ``first_id`` is the first of the 65,536 ids of this host that a location uses; None: it chooses some.
    """

    mode: Literal["auto", "host"] = "auto"
    first_id: int | None = None
    host_users: tuple[str, ...] = ()


class PodmanSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The Podman service; ``socket`` is None for the usual one of the daemon's user."""

    socket: Path | None = None
    user_namespaces: UserNamespaceSettings = UserNamespaceSettings()
    restrictions: tuple[RestrictionSettings, ...] = ()


class ImageSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The registry of images, and how long unused ones stay; ``keep`` in seconds, ``budget`` in MiB (None: no bound).

    ``registry`` is that of ``//image/NAME:TAG``. ``insecure`` lists registries that are reached over http.
    ``credentials`` is a file as ``podman login`` writes it. ``allowed`` are patterns of names; (): any image.
    """

    registry: str = ""
    keep: float = 86_400.0
    budget: int | None = None
    insecure: tuple[str, ...] = ()
    credentials: Path | None = None
    allowed: tuple[str, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of all images that may be used, those of ``registry`` included; (): any image."""
        own = (f"{self.registry}/*",) if self.registry else ()
        return (*self.allowed, *own) if self.allowed else ()


class CloudAccountSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How this host reads the object stores of a cloud account.

    ``secret`` is the name of the secret with its keys, "" for the one that the account itself names. ``endpoint`` and
    ``region`` are "" for those of the provider.
    """

    secret: str = ""
    endpoint: str = ""
    region: str = ""


class ResticSettings(msgspec.Struct, frozen=True, rename="camel"):
    """A repository of restic, as ``restic --repo`` takes it, and the file with its password."""

    repository: str
    password_file: Path


class ExportSettings(msgspec.Struct, frozen=True):
    """Where snapshots of volumes are copied to; None: nowhere."""

    restic: ResticSettings | None = None


class SnapshotSettings(msgspec.Struct, frozen=True):
    """What happens to snapshots of volumes."""

    export: ExportSettings = ExportSettings()


class RetrySettings(msgspec.Struct, frozen=True, rename="camel"):
    """When a failed step is tried again; ``base`` and ``cap`` in seconds."""

    base: float = 1.0
    cap: float = 600.0
    attempts: int = 3


class PruneSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Whether resources are deleted, and how many one run, and all runs of an hour, may delete without an approval."""

    enabled: bool = True
    count: int = 10
    percent: float = 20.0
    hourly_count: int = 20
    hourly_percent: float = 40.0
    kinds: dict[str, int] = {}


class SecretSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The identity for encrypted secrets, the policy for plain ones, and the file directory of a single source."""

    identity: Path | None = None
    policy: Literal["any", "encrypted-only"] = "any"
    directory: Path = Path("/etc/reconciler/secrets")


class BackupSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The backups of the records that are expected; ``longest_age`` in seconds is that of the newest one."""

    longest_age: float


class EventSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The number of retained events."""

    keep: int = 10_000


class LogSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The format and level of the log."""

    format: Literal["auto", "console", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class TraceSettings(msgspec.Struct, frozen=True, rename="camel"):
    """Where traces are sent: the URL of an OTLP receiver over HTTP, and a file with its token."""

    endpoint: str
    token_file: Path | None = None
    ca_file: Path | None = None


class DomainSettings(msgspec.Struct, frozen=True, rename="camel"):
    """How the proofs of domains are looked up: ``resolver`` is the ``HOST:PORT`` of a DNS server ("": the system's)."""

    resolver: str = ""


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """All settings of an operator. ``stale`` and ``approval_lasts`` in seconds."""

    org: str
    sources: tuple[SourceSettings, ...]
    state: Path = SERVICE_STATE
    readers: str = ""
    scheme: str = "platform"
    endpoint_domain: str = "platform.local"
    external: tuple[str, ...] = ()
    on_invalid: Literal["refuse", "skip"] = "refuse"
    parallel: int = 16
    retry: RetrySettings = RetrySettings()
    prune: PruneSettings = PruneSettings()
    unknown_fields: Literal["warning", "error"] = "warning"
    approval: Literal["never", "deletes", "always"] = "never"
    approval_lasts: float = 86_400.0
    approval_four_eyes: bool = False
    stale: float = 600.0
    drift: DriftPolicy = DriftPolicy()
    secrets: SecretSettings = SecretSettings()
    events: EventSettings = EventSettings()
    backups: BackupSettings | None = None
    domains: DomainSettings = DomainSettings()
    locations: dict[str, LocationSettings] = {}
    host: HostSettings = HostSettings()
    podman: PodmanSettings = PodmanSettings()
    images: ImageSettings = ImageSettings()
    cloud_accounts: dict[str, CloudAccountSettings] = {}
    snapshots: SnapshotSettings = SnapshotSettings()
    log: LogSettings = LogSettings()
    traces: TraceSettings | None = None
    api: ApiSettings | None = None
    notifications: NotificationSettings | None = None


def is_local(url: str) -> bool:
    """Whether ``url`` is a path on this machine: no scheme, and no ``host:`` before the first slash."""
    return "://" not in url and ":" not in url.partition("/")[0]
