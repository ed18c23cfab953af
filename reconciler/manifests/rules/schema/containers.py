"""Rules of the schemas about the containers of a workload and what stands in them."""

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
        "Without one nothing runs; more than eight the platform does not put into one replica.",
        "docs/platform/workload.md#spec",
    ),
    error_rule(
        "container-name",
        f"A container's name has lower-case letters, digits and hyphens, and is none that the platform uses: {_NAMES}.",
        "The platform adds containers of those names to every replica, and two of one name cannot start.",
        "docs/platform/workload.md#container-names",
    ),
    error_rule(
        "image-reference",
        "An image is NAME, NAME:TAG or NAME@sha256:DIGEST of a public registry, its NAME in lower case, or "
        "//image/NAME:TAG or /org/ORG/image/NAME:TAG of the org's own.",
        "What is written otherwise no registry can be asked for, and replicas would never start.",
        "docs/platform/workload.md#images",
    ),
    error_rule(
        "working-dir",
        "A working directory is an absolute path.",
        "There is no directory yet that a relative one could begin at.",
        "docs/platform/workload.md#containers",
    ),
    error_rule(
        "cpu-quantity",
        "CPU is written in thousandths of a core, as 500m, or in whole cores, as 1; it is not zero.",
        "Other spellings, such as 0.5, mean different things to different tools.",
        "docs/platform/workload.md#cpu-and-memory",
    ),
    error_rule(
        "memory-quantity",
        "Memory is a whole number with Mi or Gi, not zero.",
        "M and G count in thousands elsewhere and would give less than was meant.",
        "docs/platform/workload.md#cpu-and-memory",
    ),
    error_rule(
        "port-number",
        "A port is a number from 1 to 65535.",
        "There are no others, and 0 would mean a different port at every start.",
        "docs/platform/workload.md#ports",
    ),
    error_rule(
        "port-protocol",
        "A container's port speaks http, http2, grpc or tcp; an outbound port is opened for tcp, http or https.",
        "The load balancer treats each in its own way and knows no other.",
        "docs/platform/workload.md#ports",
    ),
    error_rule(
        "port-and-ports",
        "A container has `port` or `ports`, not both.",
        "`port` is the older form of the same; with both nobody could say which one gets the requests.",
        "docs/platform/workload.md#ports",
    ),
    error_rule(
        "port-blocked",
        f"No container listens on, and no TCP probe asks, a port that the platform itself uses: {_PORTS}.",
        "Something of the platform listens there already, so the container fails when it starts, long after the merge.",
        "docs/platform/workload.md#blocked-ports",
    ),
    error_rule(
        "probe-form",
        "A probe is exactly one of exec, httpGet, tcpSocket and grpc: a command with at least one word, a path that "
        "begins with /, HTTP or HTTPS.",
        "Two forms could disagree, and with none nothing would be checked.",
        "docs/platform/workload.md#probes",
    ),
    error_rule(
        "probe-bounds",
        "A probe waits 0 to 120 seconds at first, asks every 1 to 60 seconds, waits 1 to 60 seconds for the answer, "
        "and its thresholds are 1 to 20.",
        "Beyond that a replica would count as ready too early, or its end be noticed too late.",
        "docs/platform/workload.md#probes",
    ),
    error_rule(
        "probe-port",
        "An HTTP or TCP probe asks a port from 80 to 65535, a gRPC probe one from 1 to 65535.",
        "Below 80 the platform does not connect.",
        "docs/platform/workload.md#probes",
    ),
    error_rule(
        "metrics-port",
        "Metrics are asked for on a port from 1 to 65535 and a path that begins with /.",
        "Elsewhere nothing can be scraped, and the metrics would stay empty without a word.",
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
        "Other names cannot be given to a process.",
        "docs/platform/workload.md#environment-variables",
    ),
    error_rule(
        "env-reserved",
        f"No variable is called {', '.join(RESERVED_VARIABLES)} or {VARIABLE_PREFIX}….",
        "The platform sets these itself, and programs rely on what it says there.",
        "docs/platform/workload.md#environment-variables",
    ),
    error_rule(
        "env-value-length",
        "The value of a variable has at most 4096 characters.",
        "Longer text belongs into a secret that is mounted as a file.",
        "docs/platform/workload.md#environment-variables",
    ),
    error_rule(
        "mount-path",
        "A volume is mounted at an absolute path other than /.",
        "At / it would hide the image itself.",
        "docs/platform/workload.md#mount-paths",
    ),
    error_rule(
        "volume-provider",
        f"A volume is one of {SECRET_URI}NAME[.KEY], {VOLUMESET_URI}NAME, s3://BUCKET, gs://BUCKET, "
        f"azureblob://ACCOUNT/CONTAINER, azurefs://ACCOUNT/SHARE and {SCRATCH_URI}NAME.",
        "These are all that the platform can mount; with anything else a replica never starts.",
        "docs/platform/workload.md#volumes",
    ),
)
