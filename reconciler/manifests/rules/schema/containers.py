"""Rules of the schemas about the containers of a workload and their fields."""

from __future__ import annotations

from reconciler.manifests.rules.registry import Section
from reconciler.model.platform import (
    BLOCKED_PORTS,
    RESERVED_CONTAINER_PREFIXES,
    RESERVED_CONTAINERS,
    RESERVED_VARIABLES,
    SCRATCH_URI,
    SECRET_URI,
    VARIABLE_PREFIX,
    VOLUMESET_URI,
)
from reconciler.model.rule import error_rule

SECTION = Section.CONTAINERS

*_FIRST, _LAST = map(str, sorted(BLOCKED_PORTS))
_PORTS = f"{', '.join(_FIRST)} and {_LAST}"
_NAMES = ", ".join(RESERVED_CONTAINERS) + ", " + " and ".join(f"{each}…" for each in RESERVED_CONTAINER_PREFIXES)


SCHEMA_RULES = (
    error_rule(
        "container-count",
        "A workload has 1 to 8 containers.",
        "Without a container nothing runs, and the platform puts at most eight into a replica.",
        "docs/platform/workload.md#spec",
    ),
    error_rule(
        "container-name",
        f"A container's name has lower-case letters, digits and hyphens. These names are reserved: {_NAMES}.",
        "The platform adds containers with these names to every replica, and two with one name cannot start.",
        "docs/platform/workload.md#container-names",
    ),
    error_rule(
        "image-reference",
        "An image is NAME, NAME:TAG or NAME@sha256:DIGEST of a public registry, its NAME in lower case, or "
        "//image/NAME:TAG or /org/ORG/image/NAME:TAG of the org's own.",
        "Other references name no image in any registry, and replicas would never start.",
        "docs/platform/workload.md#images",
    ),
    error_rule(
        "working-dir",
        "A working directory is an absolute path.",
        "A relative path has no directory to start from.",
        "docs/platform/workload.md#containers",
    ),
    error_rule(
        "cpu-quantity",
        "CPU is written in thousandths of a core, as 500m, or in whole cores, as 1; it is not zero.",
        "Other forms, such as 0.5, have different meanings in different tools.",
        "docs/platform/workload.md#cpu-and-memory",
    ),
    error_rule(
        "memory-quantity",
        "Memory is a whole number with Mi or Gi, not zero.",
        "In other tools, M and G are powers of 1000, so the container would get less than intended.",
        "docs/platform/workload.md#cpu-and-memory",
    ),
    error_rule(
        "port-number",
        "A port is a number from 1 to 65535.",
        "No other port exists, and 0 would be a different port at every start.",
        "docs/platform/workload.md#ports",
    ),
    error_rule(
        "port-protocol",
        "A container's port speaks http, http2, grpc or tcp; an outbound port is opened for tcp, http or https.",
        "The load balancer treats each protocol differently and supports no other.",
        "docs/platform/workload.md#ports",
    ),
    error_rule(
        "port-and-ports",
        "A container has `port` or `ports`, not both.",
        "`port` is the older form of `ports`; with both it would be unclear which port gets the requests.",
        "docs/platform/workload.md#ports",
    ),
    error_rule(
        "port-blocked",
        f"No container listens on, and no TCP probe asks, a port that the platform itself uses: {_PORTS}.",
        "The platform already listens there, so the container would fail at its start, long after the merge.",
        "docs/platform/workload.md#blocked-ports",
    ),
    error_rule(
        "probe-form",
        "A probe is exactly one of exec, httpGet, tcpSocket and grpc: a command with at least one word, a path that "
        "begins with /, HTTP or HTTPS.",
        "Two forms could contradict each other, and without a form nothing would be checked.",
        "docs/platform/workload.md#probes",
    ),
    error_rule(
        "probe-bounds",
        "A probe starts after 0 to 600 seconds, runs every 1 to 60 seconds, has a timeout of 1 to 60 seconds, "
        "and its thresholds are 1 to 20.",
        "Other values would report a replica as ready too early, or as failed too late.",
        "docs/platform/workload.md#probes",
    ),
    error_rule(
        "probe-port",
        "The port of an HTTP or TCP probe is from 80 to 65535, that of a gRPC probe from 1 to 65535.",
        "The platform does not connect to ports below 80.",
        "docs/platform/workload.md#probes",
    ),
    error_rule(
        "metrics-port",
        "Metrics are scraped on a port from 1 to 65535 and a path that begins with /.",
        "Otherwise nothing can be scraped, and the metrics would stay empty without any error.",
        "docs/platform/workload.md#metrics",
    ),
    error_rule(
        "lifecycle-form",
        "A lifecycle hook runs a command of at least one word; `exec` is the only form.",
        "An empty command fails each time, which delays every start or stop.",
        "docs/platform/workload.md#lifecycle-hooks",
    ),
    error_rule(
        "env-name",
        "The name of a variable has letters, digits, hyphens, dots and underscores, does not begin with a digit, and "
        "has at most 120 characters.",
        "A process cannot have variables with other names.",
        "docs/platform/workload.md#environment-variables",
    ),
    error_rule(
        "env-reserved",
        f"No variable has the name {', '.join(RESERVED_VARIABLES)} or {VARIABLE_PREFIX}….",
        "The platform sets these, and programs rely on their values.",
        "docs/platform/workload.md#environment-variables",
    ),
    error_rule(
        "env-value-length",
        "The value of a variable has at most 4096 characters.",
        "Longer text belongs in a secret that is mounted as a file.",
        "docs/platform/workload.md#environment-variables",
    ),
    error_rule(
        "mount-path",
        "A volume is mounted at an absolute path other than /.",
        "A mount at / would hide the image.",
        "docs/platform/workload.md#mount-paths",
    ),
    error_rule(
        "volume-provider",
        f"A volume is one of {SECRET_URI}NAME[.KEY], {VOLUMESET_URI}NAME, s3://BUCKET, gs://BUCKET, "
        f"azureblob://ACCOUNT/CONTAINER, azurefs://ACCOUNT/SHARE and {SCRATCH_URI}NAME.",
        "The platform can mount nothing else, and a replica with another volume never starts.",
        "docs/platform/workload.md#volumes",
    ),
)
