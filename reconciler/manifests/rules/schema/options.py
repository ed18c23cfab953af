"""Rules of the schemas about a workload's options and firewall, about GVCs and volume sets."""

from __future__ import annotations

from reconciler.manifests.rules.registry import Section
from reconciler.model.rule import error_rule

SECTION = Section.WORKLOADS


SCHEMA_RULES = (
    error_rule(
        "workload-type",
        "A workload is serverless, standard, stateful, cron or vm.",
        "The type decides how replicas are created, scaled and reached; no other type exists. A vm is standard here.",
        "docs/platform/workload.md#types",
    ),
    error_rule(
        "autoscaling-target",
        "The target of autoscaling is a whole number from 1 to 20000.",
        "With 0, any load would require an unlimited number of replicas.",
        "docs/platform/workload.md#autoscaling",
    ),
    error_rule(
        "scale-to-zero-delay",
        "The delay before the last replica ends is 30 to 3600 seconds.",
        "A shorter delay would start and stop replicas all the time.",
        "docs/platform/workload.md#autoscaling",
    ),
    error_rule(
        "max-concurrency",
        "A replica handles 0 to 1000 requests at once; 0 means no limit.",
        "The queue of a replica does not support more.",
        "docs/platform/workload.md#autoscaling",
    ),
    error_rule(
        "timeout-seconds",
        "The timeout of a request is 1 to 600 seconds.",
        "The load balancer closes a connection after that.",
        "docs/platform/workload.md#options",
    ),
    error_rule(
        "job-history",
        "The history of a cron workload has 1 to 10 executions.",
        "The platform does not store more.",
        "docs/platform/workload.md#job",
    ),
    error_rule(
        "job-deadline",
        "The deadline of an execution is at least 1 second.",
        "With 0 every execution would end before it begins; leave the field out for no deadline.",
        "docs/platform/workload.md#job",
    ),
    error_rule(
        "job-policy",
        "`concurrencyPolicy` is Forbid or Replace, `restartPolicy` Never or OnFailure.",
        "The platform does not have the other policies of Kubernetes, such as Allow or Always.",
        "docs/platform/workload.md#job",
    ),
    error_rule(
        "rollout-amount",
        "Replicas of a rollout are a whole number or a percentage, seconds a whole number; no value is negative.",
        "The platform cannot count anything else when it replaces replicas.",
        "docs/platform/workload.md#rollout-options",
    ),
    error_rule(
        "retry-policy",
        "The number of retries is not negative, and the names of failures have lower-case letters and hyphens.",
        "With an unknown name, the proxy would refuse its whole configuration.",
        "docs/platform/workload.md#spec",
    ),
    error_rule(
        "group-id",
        "The group that owns volumes is a number from 0 to 65534.",
        "Not every file system can store a larger number.",
        "docs/platform/workload.md#users-and-groups",
    ),
    error_rule(
        "user-id",
        "The user that containers run as is a number from 0 to 65534.",
        "Not every file system can store a larger number.",
        "docs/platform/workload.md#users-and-groups",
    ),
    error_rule(
        "firewall-address",
        "A firewall opens to IPv4 or IPv6 addresses, or to ranges of them written as CIDR.",
        "A host name or an invalid range opens nothing, and requests would be dropped without any trace.",
        "docs/platform/workload.md#firewall",
    ),
    error_rule(
        "firewall-count",
        "A list of addresses in a firewall has at most 250 entries.",
        "Each entry is checked for each connection.",
        "docs/platform/workload.md#firewall",
    ),
    error_rule(
        "firewall-hostname",
        "A host that may be reached is a host name of at most 128 characters; a leading *. matches any name below.",
        "A URL, a port or an IP address never matches the name of a DNS query. Addresses belong in outboundAllowCIDR.",
        "docs/platform/workload.md#outbound-traffic",
    ),
    error_rule(
        "gvc-location",
        "A GVC lists at least one location, or has a query for locations.",
        "Without a location nothing in the GVC could run anywhere.",
        "docs/platform/fields.md#gvc",
    ),
    error_rule(
        "trusted-proxies",
        "0 to 2 proxies in front of the load balancer are trusted.",
        "A trusted proxy can claim any client address.",
        "docs/platform/fields.md#gvc",
    ),
    error_rule(
        "tracing-sampling",
        "The share of requests that are traced is 0 to 100 percent.",
        "It is a percentage.",
        "docs/platform/fields.md#tracing",
    ),
    error_rule(
        "tracing-provider",
        "Traces go to exactly one of otel, lightstep and platform, with an endpoint if they need one.",
        "A trace is sent to only one receiver.",
        "docs/platform/fields.md#tracing",
    ),
    error_rule(
        "volumeset-capacity",
        "The capacity of a volume is 10 to 16384 GB.",
        "No performance class has smaller or larger volumes.",
        "docs/platform/volumeset.md#performance-classes",
    ),
    error_rule(
        "performance-class",
        "The performance class is general-purpose-ssd, premium-low-latency-ssd or shared.",
        "Storage has only these classes, and the class can never change.",
        "docs/platform/volumeset.md#performance-classes",
    ),
    error_rule(
        "file-system",
        "The file system of a volume set is ext4, xfs or shared.",
        "Storage classes exist for these, and the file system can never change. A shared one is ext4 here.",
        "docs/platform/volumeset.md#spec",
    ),
    error_rule(
        "snapshot-retention",
        "Snapshots are kept for a number of days, hours or minutes: 7d, 12h, 90m.",
        "Without a known unit, the platform could not decide when to remove a snapshot; 0 would keep none.",
        "docs/platform/volumeset.md#snapshots",
    ),
    error_rule(
        "volumeset-autoscaling",
        "Growing volumes stay within 10 to 16384 GB, keep 1 to 100 percent free, and grow by a factor of at least 1.1.",
        "With a smaller factor a volume would grow again and again.",
        "docs/platform/volumeset.md#automatic-growth",
    ),
    error_rule(
        "storage-class-suffix",
        "The suffix of storage classes has letters, digits, hyphens and underscores, and begins with a letter.",
        "It becomes part of the name of a Kubernetes object.",
        "docs/platform/volumeset.md#spec",
    ),
)
