"""The rules of conversions; `docs/convert.md` lists them."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.finding import Severity
from reconciler.model.rule import Rule, build_rulebook

_CONVERT = "docs/platform/cli.md#convert"
_STACK = "docs/platform/cli.md#stack"
_IMPORT = "docs/platform/fields.md#manifests"

_ERRORS = {
    "convert-not-kubernetes": (
        "A document to convert is a Kubernetes resource, with apiVersion and kind, or a file of Kamal or Podman.",
        "Other documents have no counterpart.",
    ),
    "convert-malformed": (
        "A field has the type that its tool wants, and the required fields are present.",
        "Kubernetes, Compose, Kamal or Podman refuses such a file, so its conversion is a guess.",
    ),
    "convert-duplicate": (
        "A resource occurs once.",
        "Of two with the same kind, namespace and name only one can be meant.",
    ),
    "convert-too-large": (
        "What a conversion makes of its files has at most 200,000 values and 16 MiB of text.",
        "Aliases, `extends`, `envFrom` and variables repeat what they name, so that a small file can stand for "
        "more than fits into memory.",
    ),
    "convert-invalid": (
        "What a conversion writes is valid.",
        "`reconciler validate` and the daemon would refuse it: the platform has limits that the tool has not.",
    ),
    "convert-outside": (
        "A file of a project names files only below the directory of the project, unless --allow-outside is set.",
        "What it names becomes a part of the manifests, and a file of somebody else could name any file.",
    ),
    "compose-variable": (
        "A variable in a compose file is written as Compose reads it, and is set if it is required.",
        "Without it, the value is not known.",
    ),
    "convert-file": (
        "A file that a file of a project names can be read.",
        "Services would run without what it has.",
    ),
    "import-not-a-manifest": (
        "A document to import is a manifest of a kind of the platform.",
        "Other documents cannot be applied.",
    ),
    "import-duplicate": (
        "A resource occurs once.",
        "Of two with the same kind, GVC and name only one can be meant.",
    ),
}

_WARNINGS = {
    "convert-no-meaning": (
        "A kind of resource that has no counterpart is left out.",
        "The platform does its work in another way, or does not need it.",
    ),
    "convert-owned": (
        "A resource that another one generates is left out.",
        "The other one is converted, or would generate it again.",
    ),
    "convert-left-out": (
        "A field that has no counterpart is left out.",
        "The workload runs without the effect of the field.",
    ),
    "convert-changed": (
        "A value is carried over with a slightly different meaning.",
        "The platform has other limits and options than other tools.",
    ),
    "convert-name": (
        "A name that the platform refuses, or that is already in use, is changed.",
        "References by name outside of these files must change too.",
    ),
    "convert-missing": (
        "The target of a reference is not among the files.",
        "It must exist with that name before the manifests can be applied.",
    ),
    "convert-pull-secret": (
        "Secrets for registries belong to the GVC, not to a workload.",
        "Without them images of private registries cannot be pulled.",
    ),
    "convert-init-container": (
        "Containers that run before the others have no counterpart and are left out.",
        "The image, or the container's own command, must do their work.",
    ),
    "convert-host-path": (
        "Directories of the machine cannot be mounted and are left out.",
        "A replica has no machine of its own.",
    ),
    "convert-mount": (
        "A mount that the platform refuses is left out.",
        "Mounts are absolute paths, neither reserved nor inside one another, each only once.",
    ),
    "convert-capacity": (
        "The capacity of a volume is within the bounds of its performance class.",
        "A volume has at least 10 and at most 16384 GB.",
    ),
    "convert-shared-volume": (
        "A volume belongs to one replica of one workload.",
        "Volumes are never shared, nor is data copied between them.",
    ),
    "convert-scratch-path": (
        "Containers share a scratch volume at one path.",
        "At two paths, it is two directories: what one container writes, the other does not see.",
    ),
    "convert-binary": (
        "A value that is not plain text is written in base64.",
        "Programs that read it must decode it.",
    ),
    "convert-job": (
        "A Job becomes a cron workload that is suspended, and is run on demand.",
        "A cron workload needs a schedule, and a Job has none.",
    ),
    "compose-unset": (
        "A variable of a compose file that is not set counts as empty.",
        "Compose does the same, but it is seldom meant.",
    ),
    "compose-build": (
        "An image that is built from files is pushed before the manifests are applied.",
        "Workloads pull their images from a registry.",
    ),
    "import-no-data": (
        "A secret without data is left out.",
        "A secret is read without its data; only `reveal` returns it.",
    ),
    "import-gvc": (
        "A workload, identity or volume set names its GVC.",
        "Otherwise the GVC's manifest must be beside it or in a directory above.",
    ),
    "import-invalid": (
        "What an import writes is valid.",
        "`reconciler validate` and the daemon would refuse it until it is changed.",
    ),
    "import-unknown": (
        "An unknown field stays unchanged.",
        "Its meaning is unknown, and so is its default.",
    ),
    "import-built-in": (
        "Resources that the platform makes by itself are left out.",
        "Built-in resources, tags and deployments exist without a manifest and cannot be changed by one.",
    ),
}

_NOTICES = {
    "compose-profile": (
        "A service whose profiles are off is left out.",
        "Compose does not start it either.",
    ),
    "compose-extension": (
        "A field that begins with x- is left out.",
        "Compose gives it no meaning; only aliases of its anchor do.",
    ),
    "compose-network": (
        "Networks are left out.",
        "Workloads of a GVC share one network, and the firewall decides who reaches which.",
    ),
    "compose-copied": (
        "A file of the project that a service mounts becomes a secret.",
        "Replicas have no directory of the project.",
    ),
    "compose-capacity": (
        "A volume without a size has 10 GB.",
        "Volumes of Compose, Kamal and Podman have no size, and a volume set has one.",
    ),
    "compose-published": (
        "A port of the machine becomes the endpoint of the workload.",
        "Replicas share no ports of a machine.",
    ),
    "compose-port": (
        "A port at which others address the service, or that its image usually serves, is declared.",
        "Workloads are reached only at declared ports; containers of Compose, Kamal and Podman at all.",
    ),
    "convert-gvc": (
        "The GVC is that of --gvc, else the namespace, the service or the name of the project; it must exist.",
        "A GVC has the locations of its workloads, which no file of other tools names.",
    ),
    "convert-default": (
        "If Kubernetes and the platform have different defaults, that of the platform applies.",
        "A workload may get less, or reach less, than before.",
    ),
    "convert-service-name": (
        "A Service has no counterpart: workloads reach each other by their own names and ports.",
        "Addresses in configuration and code must change.",
    ),
}


_PAGES = {"convert": _CONVERT, "compose": _STACK, "import": _IMPORT}


def _list_rules() -> Iterator[Rule]:
    for severity, rules in ((Severity.ERROR, _ERRORS), (Severity.WARNING, _WARNINGS), (Severity.NOTICE, _NOTICES)):
        for name, (what, why) in rules.items():
            yield Rule(name, severity, what, why, _PAGES[name.partition("-")[0]])


RULEBOOK = build_rulebook(_list_rules())
"""Every rule of `reconciler convert`, `reconciler import` and `platform stack`, by id."""
