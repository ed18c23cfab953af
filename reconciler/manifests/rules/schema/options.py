"""Rules of the schemas about a workload's options and firewall, about GVCs and volume sets."""

from __future__ import annotations

from reconciler.manifests.rules.registry import Section
from reconciler.model.rule import error_rule

SECTION = Section.WORKLOADS

_WORKLOAD = "4-fields.md, section 5"
_OPTIONS = "document 1, Autoscaling options; 4-fields.md, section 5, options"
_LIMITS = "document 1, Limits"
_JOB = "document 1, Cron job fields; 4-fields.md, section 5, job"
_FIREWALL = "document 1, Firewall; 4-fields.md, section 5, firewallConfig"
_GVC = "4-fields.md, section 4"
_VOLUMESET = "4-fields.md, section 6"

SCHEMA_RULES = (
    error_rule(
        "workload-type",
        "A workload is serverless, standard, stateful or cron.",
        "The type decides how replicas are made, scaled and reached; there is no other way.",
        "document 1, Workload types",
    ),
    error_rule(
        "autoscaling-target",
        "The target of autoscaling is a whole number from 1 to 20000.",
        "At 0 any load at all would call for endless replicas.",
        _OPTIONS,
    ),
    error_rule(
        "scale-to-zero-delay",
        "The delay before the last replica goes is 30 to 3600 seconds.",
        "A shorter one would start and stop replicas all the time.",
        _LIMITS,
    ),
    error_rule(
        "max-concurrency",
        "A replica works on 0 to 1000 requests at once; 0 means no limit.",
        "The queue before a replica is not made for more.",
        _LIMITS,
    ),
    error_rule(
        "timeout-seconds",
        "A request is given up after 1 to 600 seconds.",
        "The load balancer holds no connection for longer.",
        _LIMITS,
    ),
    error_rule(
        "job-history",
        "Of a cron workload 1 to 10 past executions are kept.",
        "More the platform does not store.",
        _LIMITS,
    ),
    error_rule(
        "job-deadline",
        "The deadline of an execution is at least 1 second.",
        "With 0 every execution would be ended before it begins; leave it out for none.",
        _JOB,
    ),
    error_rule(
        "job-policy",
        "`concurrencyPolicy` is Forbid or Replace, `restartPolicy` Never or OnFailure.",
        "Other policies of cron elsewhere, such as Allow or Always, the platform does not have.",
        _JOB,
    ),
    error_rule(
        "rollout-amount",
        "Replicas of a rollout are a whole number or a percentage, seconds a whole number; none is negative.",
        "Anything else cannot be counted when replicas are replaced.",
        "document 1, Rollout options; 4-fields.md, section 5",
    ),
    error_rule(
        "retry-policy",
        "Requests are sent again a number of times that is not negative, on failures named in lower case with hyphens.",
        "A name that the proxy does not know makes it refuse its whole configuration.",
        _WORKLOAD,
    ),
    error_rule(
        "group-id",
        "The group that owns volumes is a number from 0 to 65534.",
        "Above that no file system can write it down for sure.",
        _WORKLOAD,
    ),
    error_rule(
        "user-id",
        "The user that containers run as is a number from 0 to 65534.",
        "Above that no file system can write it down for sure.",
        _WORKLOAD,
    ),
    error_rule(
        "firewall-address",
        "A firewall opens to IPv4 or IPv6 addresses, or to ranges of them written as CIDR.",
        "A host name or a misspelt range opens nothing, and requests would be dropped without a trace.",
        _FIREWALL,
    ),
    error_rule(
        "firewall-count",
        "A list of addresses in a firewall has at most 250 entries.",
        "Each entry is checked for each connection.",
        _FIREWALL,
    ),
    error_rule(
        "firewall-hostname",
        "A host that may be reached is a host name of at most 128 characters; a leading *. stands for any name below.",
        "A URL, a port or an IP address never matches a name that is looked up. Addresses belong in outboundAllowCIDR.",
        _FIREWALL,
    ),
    error_rule(
        "gvc-location",
        "A GVC lists at least one location, or has a query for locations.",
        "Without a location nothing in the GVC could run anywhere.",
        _GVC,
    ),
    error_rule(
        "trusted-proxies",
        "0 to 2 proxies in front of the load balancer are trusted.",
        "Whoever is trusted can claim any client address.",
        _GVC,
    ),
    error_rule(
        "tracing-sampling",
        "The share of requests that are traced is 0 to 100 percent.",
        "It is a percentage.",
        _GVC,
    ),
    error_rule(
        "tracing-provider",
        "Traces go to exactly one of otel, lightstep and platform, which name an endpoint where they need one.",
        "A trace is sent to one receiver only.",
        _GVC,
    ),
    error_rule(
        "volumeset-capacity",
        "The capacity of a volume is 10 to 16384 GB.",
        "Neither performance class has smaller or larger volumes.",
        "document 2, Performance classes",
    ),
    error_rule(
        "performance-class",
        "The performance class is general-purpose-ssd or premium-low-latency-ssd.",
        "Storage is provided in these two classes only, and the class can never change.",
        "document 2, Performance classes",
    ),
    error_rule(
        "file-system",
        "The file system of a volume set is ext4 or xfs.",
        "Storage classes exist for these two, and the file system can never change.",
        "document 2, Private-cluster locations; 4-fields.md, section 6",
    ),
    error_rule(
        "snapshot-retention",
        "Snapshots are kept for a number of days, hours or minutes: 7d, 12h, 90m.",
        "Without a unit that is known no snapshot would ever be removed, or all at once. With 0 none would be kept.",
        _VOLUMESET,
    ),
    error_rule(
        "volumeset-autoscaling",
        "Growing volumes stay within 10 to 16384 GB, keep 1 to 100 percent free, and grow by a factor of at least 1.1.",
        "With a smaller factor a volume would be extended over and over again.",
        _VOLUMESET,
    ),
    error_rule(
        "storage-class-suffix",
        "The suffix of storage classes has letters, digits, hyphens and underscores, and begins with a letter.",
        "It becomes part of the name of a Kubernetes object.",
        _VOLUMESET,
    ),
)
