"""The rules of conversions; `docs/convert.md` lists them."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.finding import Severity
from reconciler.model.rule import Rule, rulebook

_CONVERT = "docs/platform/cli.md#convert"
_IMPORT = "docs/platform/fields.md#manifests"

_ERRORS = {
    "convert-not-kubernetes": (
        "A document to convert is a Kubernetes resource: a mapping with apiVersion and kind.",
        "Whatever else it is, nobody can say what it should become.",
    ),
    "convert-malformed": (
        "A field has the type that Kubernetes gives it, and the fields that a resource cannot do without are there.",
        "Kubernetes refuses such a resource, so what was meant is a guess.",
    ),
    "convert-duplicate": (
        "A resource is given once.",
        "Of two with the same kind, namespace and name only one can be meant.",
    ),
    "import-not-a-manifest": (
        "A document to import is a manifest of a kind that the platform has.",
        "Whatever else it is, it cannot be applied.",
    ),
    "import-duplicate": (
        "A resource is given once.",
        "Of two with the same kind, GVC and name only one can be meant.",
    ),
}

_WARNINGS = {
    "convert-no-meaning": (
        "A kind of resource that has no counterpart is left out.",
        "What it did in the cluster has to be done another way here, or is not needed.",
    ),
    "convert-owned": (
        "A resource that another one makes is left out.",
        "The one that makes it is converted, or would make it again.",
    ),
    "convert-left-out": (
        "A field that has no counterpart is left out.",
        "The workload runs without what the field asked for.",
    ),
    "convert-changed": (
        "A value is carried over, but not with quite the same meaning.",
        "Bounds and choices of the platform are not those of Kubernetes.",
    ),
    "convert-name": (
        "A name that the platform refuses, or that is taken already, is changed.",
        "Who refers to it by name outside of these files has to follow.",
    ),
    "convert-missing": (
        "What a resource refers to is not among the files.",
        "It has to exist under that name before the manifests can be applied.",
    ),
    "convert-pull-secret": (
        "Secrets that open registries belong to the GVC, not to a workload.",
        "Without them images of private registries cannot be pulled.",
    ),
    "convert-init-container": (
        "Containers that run before the others have no counterpart and are left out.",
        "What they prepare has to be done in the image, or by the container's own command.",
    ),
    "convert-host-path": (
        "Directories of the machine cannot be mounted and are left out.",
        "A replica has no machine of its own.",
    ),
    "convert-mount": (
        "A mount that the platform refuses is left out.",
        "Mounts are absolute paths, neither reserved nor inside one another, each given once.",
    ),
    "convert-capacity": (
        "The capacity of a volume is within the bounds of its performance class.",
        "A volume has at least 10 and at most 16384 GB.",
    ),
    "convert-shared-volume": (
        "A volume belongs to one replica of one workload.",
        "Volumes are never shared, nor is data copied between them.",
    ),
    "convert-binary": (
        "A value that is not plain text is written in base64.",
        "Whoever reads it has to decode it.",
    ),
    "convert-job": (
        "A Job becomes a cron workload that is suspended, and is run on demand.",
        "A cron workload needs a schedule, and a Job has none.",
    ),
    "import-no-data": (
        "A secret without data is left out.",
        "Reading a secret returns no data; only revealing it does.",
    ),
    "import-gvc": (
        "A workload, identity or volume set names its GVC.",
        "Else the GVC's manifest has to lie beside it or above, which only the one who places the file can see to.",
    ),
    "import-unknown": (
        "A field that is not known is left as it is.",
        "Nobody can say what it means, or whether its value is the default.",
    ),
    "import-built-in": (
        "What the platform makes by itself is left out.",
        "Built-in resources, tags and deployments exist without a manifest and cannot be changed by one.",
    ),
}

_NOTICES = {
    "convert-gvc": (
        "The GVC of what is written is the one that --gvc names, else the namespace; it has to exist.",
        "A GVC says at which locations its workloads run, which no Kubernetes file can.",
    ),
    "convert-default": (
        "Where Kubernetes and the platform have different defaults, that of the platform holds.",
        "A workload may get less, or reach less, than it did.",
    ),
    "convert-service-name": (
        "A Service has no counterpart: workloads reach each other by their own names and ports.",
        "Addresses in configuration and code have to follow.",
    ),
}


def _rules() -> Iterator[Rule]:
    for severity, rules in ((Severity.ERROR, _ERRORS), (Severity.WARNING, _WARNINGS), (Severity.NOTICE, _NOTICES)):
        for name, (what, why) in rules.items():
            yield Rule(name, severity, what, why, _CONVERT if name.startswith("convert-") else _IMPORT)


RULEBOOK = rulebook(_rules())
"""Every rule of `reconciler convert` and `reconciler import`, by id."""
