"""Facts of the platform, each once: URI schemes, reserved ports, paths and names, built-in tags and resources."""

from __future__ import annotations

from reconciler.model.key import Kind

SPELLING = "platform"
"""The name of the platform in the normal form; manifests may use another one (the setting ``scheme``)."""

PLATFORM_URI = f"{SPELLING}://"
SECRET_URI = f"{PLATFORM_URI}secret/"
VOLUMESET_URI = f"{PLATFORM_URI}volumeset/"
"""The beginnings of the URIs of secrets and volume sets in normal form."""

SCRATCH = "scratch"
SCRATCH_URI = f"{SCRATCH}://"
"""The beginning of the URI of a directory that is deleted with its replica."""

STORE_PROVIDERS = {"s3": "aws", "gs": "gcp", "azureblob": "azure", "azurefs": "azure"}
"""Schemes of object stores and file shares, each with its cloud provider."""
FILE_SHARE_URI = "azurefs://"
"""The beginning of the URI of a file share, the only one of these that can be written to."""
STORE_URIS = tuple(f"{scheme}://" for scheme in STORE_PROVIDERS)

MOUNT_SCHEMES = frozenset({SPELLING, *STORE_PROVIDERS, SCRATCH})
"""Every scheme that a volume can have in normal form (docs/platform/workload.md#volumes)."""

RESERVED_PATHS = frozenset({"/dev", "/dev/log", "/tmp", "/var", "/var/log"})
"""Paths where nothing can be mounted (docs/platform/workload.md#mount-paths)."""

BLOCKED_PORTS = frozenset({8012, 8022, 9090, 9091, 15000, 15001, 15006, 15020, 15021, 15090, 41000})
"""Ports that no container can bind (docs/platform/workload.md#blocked-ports)."""

RESTRICTED_USER = 1337
"""A container that runs as this user has no network (docs/platform/workload.md#users-and-groups)."""

RESERVED_CONTAINERS = ("istio-proxy", "queue-proxy", "istio-validation")
RESERVED_CONTAINER_PREFIXES = (f"{SPELLING}-", "debugger-")
"""Names of containers that the platform adds to replicas (docs/platform/workload.md#container-names)."""

OWN_PROVIDER = "byok"
"""The provider of the organization's own locations."""
LOCATION_PROVIDERS = frozenset({"aws", "azure", "gcp", OWN_PROVIDER})
"""Providers of locations (docs/platform/fields.md#location)."""

VARIABLE_PREFIX = f"{SPELLING.upper()}_"
PLATFORM_VARIABLES = (
    "GLOBAL_ENDPOINT",
    "GVC",
    "GVC_ALIAS",
    "LOCATION",
    "NAMESPACE",
    "PROVIDER",
    "ORG",
    "WORKLOAD",
    "WORKLOAD_VERSION",
    "TOKEN",
    "IMAGE",
    "ENDPOINT",
)
"""Variables of every container, without VARIABLE_PREFIX (docs/platform/workload.md#built-in-variables)."""
RESERVED_VARIABLES = ("K_SERVICE", "K_CONFIGURATION", "K_REVISION")
"""Variables that no manifest may set, in addition to those that begin with VARIABLE_PREFIX."""
BUILT_IN_VARIABLES = frozenset({"PORT", *RESERVED_VARIABLES, *(VARIABLE_PREFIX + name for name in PLATFORM_VARIABLES)})
"""All variables that every container has."""

TAG_PREFIX = f"{SPELLING}/"
PROTECTED_TAG = f"{TAG_PREFIX}protected"
RELAXED_RATIO_TAG = f"{TAG_PREFIX}relaxMemoryToCpuRatio"
DEPLOY_TIMESTAMP_TAG = f"{TAG_PREFIX}deployTimestamp"
BUILT_IN_TAGS = frozenset({PROTECTED_TAG, RELAXED_RATIO_TAG, DEPLOY_TIMESTAMP_TAG, f"{TAG_PREFIX}release"})
"""Built-in tags that a manifest may carry (docs/platform/fields.md#tags)."""

UNMODELLED_TAGS = {f"{TAG_PREFIX}publishNotReadyAddresses": "lists replicas that are not ready"}
"""Built-in tags that a manifest may carry and that have no effect here → what the platform does unless it is false."""
MARK_TAGS = (f"{TAG_PREFIX}marketplace", f"{TAG_PREFIX}checksum")
"""The beginnings of built-in tags that a manifest may carry, and that only say where it is from."""

SNAPSHOT_ON = "reconciler/snapshot-on"
NEW_VERSION = "new-version"
"""A tag of stateful workloads, with its only value: a snapshot of their volumes precedes each new version."""

PRE_SNAPSHOT = "reconciler/pre-snapshot"
POST_SNAPSHOT = "reconciler/post-snapshot"
"""Tags of stateful workloads: commands in the container that mounts a volume, before and after each snapshot of it."""

VERIFY_SNAPSHOT = "reconciler/verify-snapshot"
VERIFY_SCHEDULE = "reconciler/verify-schedule"
"""Tags of stateful workloads: a command that checks a copy of a snapshot of its volume, and when it runs."""

KEEP_LAST = "reconciler/snapshot-keep-last"
"""A tag of volume sets: how many snapshots of the schedule each volume keeps at most."""

_GROUPS = ("superusers", "viewers")
AUDIT_CONTEXT = f"auditctx/{SPELLING}"
"""The key of the built-in audit context, which holds the audit log of the HTTP API."""
BUILT_IN_RESOURCES = frozenset(
    {AUDIT_CONTEXT}
    | {f"group/{group}" for group in _GROUPS}
    | {f"policy/{group}-{kind}" for group in _GROUPS for kind in Kind}
)
"""Keys of the resources that exist in every org without a manifest (docs/platform/fields.md#group)."""

ADOPT = "reconciler/adopt"
"""The tag of a workload that takes over objects of its names that others made on a cluster."""
