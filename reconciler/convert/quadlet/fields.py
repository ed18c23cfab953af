"""The keys of quadlets: what becomes of each, and notes about those that have no counterpart."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from reconciler.convert.compose.nodes import NodeOrigin
from reconciler.convert.notes import ConversionNote
from reconciler.convert.quadlet.units import Unit, UnitEntry
from reconciler.model.suggest import find_closest_word

CARRIED = {
    "Container.ContainerName": "the name of the workload; else that of the file",
    "Container.Entrypoint": "`command`, and the first of `args`",
    "Container.Environment": "`env`",
    "Container.EnvironmentFile": "`env`, each a key of a secret with the variables of the file",
    "Container.Exec": "`args`",
    "Container.ExposeHostPort": "`ports`, for workloads of the GVC",
    "Container.Group": "`securityOptions.filesystemGroupId`, by number",
    "Container.HealthCmd": "`readinessProbe.exec`",
    "Container.HealthInterval": "`readinessProbe.periodSeconds`",
    "Container.HealthRetries": "`readinessProbe.failureThreshold`",
    "Container.HealthStartPeriod": "`readinessProbe.initialDelaySeconds`",
    "Container.HealthTimeout": "`readinessProbe.timeoutSeconds`",
    "Container.Image": "`image`, with the registry of Docker if it names none; a `.image` unit gives its `Image`, a "
    "`.build` unit a warning",
    "Container.Label": "tags",
    "Container.Memory": "`memory`",
    "Container.Mount": "as `Volume` and `Tmpfs`: the types volume, bind and tmpfs",
    "Container.Network": "left out with a notice: workloads of a GVC share one network",
    "Container.Pod": "a container of the workload of the pod",
    "Container.PodmanArgs": "`cpu` and `memory` of --cpus and --memory; the others are left out with a remark",
    "Container.PublishPort": "`ports`; HTTP ports of a standard workload are open to all addresses",
    "Container.Secret": "`env` (type=env) or a file below `/run/secrets`, of a secret that you create",
    "Container.StopTimeout": "up to 90 seconds, which every replica has",
    "Container.Tmpfs": "`scratch://NAME`",
    "Container.User": "`securityOptions.runAsUser`, by number",
    "Container.Volume": "a volume set, or a directory `scratch://NAME`; paths of the machine are left out",
    "Container.WorkingDir": "`workingDir`",
    "Pod.Network": "left out with a notice: workloads of a GVC share one network",
    "Pod.PodName": "the name of the workload; else that of the file",
    "Pod.PublishPort": "`ports` of the first container",
    "Pod.Volume": "a mount of the first container",
    "Service.CPUQuota": "`cpu`",
    "Service.MemoryMax": "`memory`",
    "Service.Type": "oneshot: a cron workload that is run on demand",
    "Timer.OnCalendar": "`job.schedule`, in UTC, where cron has an equal; else a remark",
    "Timer.Unit": "the container that becomes a cron workload; else that of the same name",
    "Unit.After": "the tag `reconciler/depends-on`, for other containers of the files",
    "Unit.BindsTo": "as `After`",
    "Unit.Description": "`description`",
    "Unit.Requires": "as `After`",
    "Unit.Wants": "as `After`",
    "Volume.Label": "tags",
    "Volume.VolumeName": "the name of the volume set; else that of the file",
}
"""Section and key → its counterpart."""

TEXTS = {
    "Entrypoint": "entrypoint",
    "Exec": "command",
    "Memory": "mem_limit",
    "StopTimeout": "stop_grace_period",
    "WorkingDir": "working_dir",
}
LISTS = {"ExposeHostPort": "expose", "PublishPort": "ports", "Tmpfs": "tmpfs", "Volume": "volumes"}
PAIRS = {"Environment": "environment", "Label": "labels"}
HEALTH_CHECKS = {
    "HealthInterval": "interval",
    "HealthRetries": "retries",
    "HealthStartPeriod": "start_period",
    "HealthTimeout": "timeout",
}
ARGUMENTS = {"--cpus": "cpus", "--memory": "mem_limit", "-m": "mem_limit"}
"""Keys of containers, and options of Podman, with the fields of a service in a compose file that they become."""

SAME_HERE = frozenset(
    (
        "Container.EnvironmentHost",
        "Container.Notify",
        "Container.Pull",
        "Container.ServiceName",
        "Image.Image",
        "Pod.ServiceName",
        "Quadlet.DefaultDependencies",
        "Service.Restart",
        "Service.RestartSec",
        "Service.Slice",
        "Service.TimeoutStartSec",
        "Service.TimeoutStopSec",
        "Timer.AccuracySec",
        "Unit.Before",
        "Unit.Documentation",
        "Unit.PartOf",
        "Unit.RequiresMountsFor",
        "Unit.SourcePath",
        "Unit.StartLimitBurst",
        "Unit.StartLimitIntervalSec",
        "Volume.Copy",
        "Volume.ServiceName",
    )
)
"""Keys that only say how systemd starts a unit, or that describe what the platform does; they are left out without a
remark, as all of `[Install]` and `X-` sections are."""

_RIGHTS = "containers have no rights beyond their own"
_KERNEL = "the host decides it for all containers"
_DNS = "use names that resolve everywhere"
_NETWORK = "workloads of a GVC share one network; firewallConfig decides who reaches a workload"
_LOGS = "logs are collected by themselves: platform logs"
_DEVICES = "containers have no devices of the machine"
_VOLUME = "a volume set begins empty: copy the data of the volume"

LEFT_OUT = {
    **dict.fromkeys(
        (
            "AddCapability",
            "DropCapability",
            "NoNewPrivileges",
            "SeccompProfile",
            "SecurityLabelDisable",
            "SecurityLabelFileType",
            "SecurityLabelLevel",
            "SecurityLabelNested",
            "SecurityLabelType",
            "Mask",
            "Unmask",
        ),
        _RIGHTS,
    ),
    **dict.fromkeys(
        (
            "CgroupsMode",
            "GIDMap",
            "GlobalArgs",
            "PidsLimit",
            "RunInit",
            "SubGIDMap",
            "SubUIDMap",
            "Sysctl",
            "UIDMap",
            "Ulimit",
            "UserNS",
            "ContainersConfModule",
            "RemapGid",
            "RemapUid",
            "RemapUidSize",
            "RemapUsers",
            "GroupAdd",
        ),
        _KERNEL,
    ),
    **dict.fromkeys(("AddHost", "DNS", "DNSOption", "DNSSearch"), _DNS),
    **dict.fromkeys(("IP", "IP6", "HostName", "NetworkAlias"), _NETWORK),
    **dict.fromkeys(("LogDriver", "LogOpt"), _LOGS),
    "AddDevice": _DEVICES,
    "Annotation": "see tags of the workload",
    "AutoUpdate": "see supportDynamicTags",
    "HealthLogDestination": _LOGS,
    "HealthMaxLogCount": _LOGS,
    "HealthMaxLogSize": _LOGS,
    "HealthOnFailure": "see livenessProbe",
    "HealthStartupCmd": "raise initialDelaySeconds of the probe",
    "HealthStartupInterval": "raise initialDelaySeconds of the probe",
    "HealthStartupRetries": "raise initialDelaySeconds of the probe",
    "HealthStartupSuccess": "raise initialDelaySeconds of the probe",
    "HealthStartupTimeout": "raise initialDelaySeconds of the probe",
    "ReadOnly": "the program can write outside of volumes; what it writes there goes with the replica",
    "ReadOnlyTmpfs": "mount scratch://NAME where the program writes",
    "VolatileTmp": "mount scratch://NAME where the program writes",
    "ReloadCmd": "a workload has no reload; a change replaces its replicas",
    "ReloadSignal": "a workload has no reload; a change replaces its replicas",
    "Retry": "pulls are repeated by themselves",
    "RetryDelay": "pulls are repeated by themselves",
    "Rootfs": "build an image of the directory",
    "ShmSize": "mount scratch://shm at a path of the program's choice",
    "StartWithPod": "all containers of a workload start together",
    "StopSignal": "the program gets SIGTERM; a preStop hook can send another signal",
    "Timezone": "set the variable TZ",
}
"""Key of [Container] or [Pod] without a counterpart → what to do instead."""

OTHERS = {
    "Build": "build the image and push it",
    "Image": "link a docker secret from the GVC: spec.pullSecretLinks",
    "Kube": "convert the file that Yaml names: reconciler convert FILE",
    "Network": _NETWORK,
    "Pod.ExitPolicy": "a workload ends when it is deleted or suspended",
    "Timer": "see job.schedule of the workload",
    "Timer.Persistent": "a run that was missed is not made up for",
    "Timer.RandomizedDelaySec": "each run starts at its time",
    "Service": "it says how systemd runs podman; see lifecycle of the workload",
    "Unit": "a workload is applied by itself",
    "Volume": _VOLUME,
}
"""Section, or key with its section → what to do instead of its other keys."""


def check_unused_entries(unit: Unit) -> Iterator[ConversionNote]:
    """Notes about the entries of ``unit`` that nothing is made of."""
    for entry in unit.entries:
        form = f"{entry.section}.{entry.key}"
        if form in CARRIED or form in SAME_HERE or entry.section == "Install" or entry.section.startswith("X-"):
            continue
        if entry.section == "Unit" and unit.suffix == ".timer":
            continue
        yield _make_note(unit, entry, form)


def origin_of(unit: Unit, entry: UnitEntry | None = None) -> NodeOrigin:
    """Where ``entry`` is written, or the unit begins."""
    path = entry.path if entry and entry.path else unit.path
    return NodeOrigin(path, 0, entry.at if entry else (), posixpath.dirname(unit.path))


def _make_note(unit: Unit, entry: UnitEntry, form: str) -> ConversionNote:
    is_of_container = entry.section in ("Container", "Pod")
    instead = LEFT_OUT.get(entry.key, "") if is_of_container else ""
    instead = instead or OTHERS.get(form) or ("" if is_of_container else OTHERS.get(entry.section, ""))
    if not instead:
        section = f"{entry.section}."
        beside = [text.removeprefix(section) for text in CARRIED if text.startswith(section)] + [*LEFT_OUT]
        near = find_closest_word(entry.key, sorted(set(beside)))
        instead = f"did you mean `{near}`?" if near else ""
    rule = "compose-network" if entry.section == "Network" else "convert-left-out"
    message = f"`{entry.key}` of [{entry.section}] has no counterpart and is left out"
    return origin_of(unit, entry).note(rule, message, instead)
