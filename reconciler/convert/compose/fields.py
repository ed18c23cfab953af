"""The fields of compose files: what becomes of each, and notes about those that have no counterpart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.convert.compose.merging import SECTIONS
from reconciler.convert.compose.values import Field
from reconciler.model.finding import Pointer
from reconciler.model.suggest import find_closest_word

ANY = "any value"

CARRIED = {
    "configs.*": "`secret` of type dictionary; opaque if it is not text",
    "include": "the included files are read as a part of the project",
    "name": "the GVC, unless `--gvc` or the profile names one",
    "secrets.*": "`secret` of type dictionary; opaque if it is not text",
    "services.*": "`workload`: of type stateful if it mounts a volume, cron if it runs to its end, else standard",
    "services.*.build": "an image `//image/SERVICE:latest` if `image` is not set; a warning says how to push it",
    "services.*.command": "`args`",
    "services.*.configs": "a file at its target",
    "services.*.cpus": "`cpu`",
    "services.*.depends_on": "the tag `reconciler/depends-on`: the workload waits until the others are healthy",
    "services.*.deploy.labels": "tags",
    "services.*.deploy.mode": "replicated-job: a cron workload that is run on demand",
    "services.*.deploy.replicas": "`autoscaling` with this minimum and maximum; 0 becomes `suspend`",
    "services.*.deploy.resources.limits.cpus": "`cpu`",
    "services.*.deploy.resources.limits.memory": "`memory`",
    "services.*.deploy.resources.reservations.cpus": "`cpu` if there is no limit",
    "services.*.deploy.resources.reservations.memory": "`memory` if there is no limit",
    "services.*.deploy.restart_policy.condition": "`job.restartPolicy` of a service that runs to its end",
    "services.*.deploy.update_config.order": "`rolloutOptions`: replicas in excess (start-first), or missing",
    "services.*.deploy.update_config.parallelism": "`rolloutOptions`: how many of these",
    "services.*.entrypoint": "`command`, and the first of `args`",
    "services.*.env_file": "a `secret` of type dictionary, which `env` refers to",
    "services.*.environment": "`env`",
    "services.*.expose": "`ports`, for workloads of the GVC",
    "services.*.extends": "the service has what it extends",
    "services.*.healthcheck.disable": "no `readinessProbe`",
    "services.*.healthcheck.interval": "`readinessProbe.periodSeconds`",
    "services.*.healthcheck.retries": "`readinessProbe.failureThreshold`",
    "services.*.healthcheck.start_period": "`readinessProbe.initialDelaySeconds`",
    "services.*.healthcheck.test": "`readinessProbe.exec`",
    "services.*.healthcheck.timeout": "`readinessProbe.timeoutSeconds`",
    "services.*.image": "`image`; a name without a registry gets that of Docker, `docker.io`",
    "services.*.labels": "tags",
    "services.*.mem_limit": "`memory`",
    "services.*.mem_reservation": "`memory` if there is no limit",
    "services.*.ports": "`ports`; HTTP ports of a standard workload are open to all addresses",
    "services.*.post_start": "`lifecycle.postStart`, one command",
    "services.*.pre_stop": "`lifecycle.preStop`, one command",
    "services.*.profiles": "the service is left out with a notice unless `--compose-profile` names one of them",
    "services.*.restart": "`no` without a port: a cron workload that is run on demand, with this `job.restartPolicy`",
    "services.*.scale": "as `deploy.replicas`",
    "services.*.secrets": "a file at its target, below `/run/secrets`",
    "services.*.stop_grace_period": "up to 90 seconds, which every replica has",
    "services.*.tmpfs": "`scratch://NAME`",
    "services.*.user": "`securityOptions`, by numbers",
    "services.*.volumes": "a volume set, a directory `scratch://NAME`, or a file of the project as a secret",
    "services.*.working_dir": "`workingDir`",
    "volumes.*": "`volumeset` of 10 GB, or of `driver_opts.size`; it begins empty",
    "volumes.*.driver_opts.size": "`initialCapacity`",
    "volumes.*.labels": "tags",
}
"""Form of a field → its counterpart."""

SAME_HERE: dict[str, tuple[Any, ...]] = {
    "services.*.attach": (ANY,),
    "services.*.configs.mode": ("0444", "444", 292),
    "services.*.deploy.endpoint_mode": ("vip",),
    "services.*.deploy.mode": ("replicated",),
    "services.*.deploy.restart_policy.condition": ("any",),
    "services.*.deploy.update_config.failure_action": ("pause",),
    "services.*.platform": ("linux/amd64",),
    "services.*.ports.mode": ("ingress",),
    "services.*.privileged": (False,),
    "services.*.pull_policy": ("always", "missing", "if_not_present"),
    "services.*.read_only": (False,),
    "services.*.restart": ("always", "unless-stopped"),
    "services.*.secrets.mode": ("0444", "444", 292),
    "services.*.stdin_open": (False,),
    "services.*.stop_signal": ("SIGTERM",),
    "services.*.tty": (False,),
    "services.*.volumes.bind.create_host_path": (ANY,),
    "services.*.volumes.consistency": (ANY,),
    "services.*.volumes.mode": ("z", "Z", "cached", "delegated", "consistent"),
    "services.*.volumes.volume.nocopy": (True,),
    "version": (ANY,),
    "volumes.*.driver": ("local",),
}
"""Fields omitted without a note, with the values for which the platform does the same."""

_RIGHTS = "containers have no rights beyond their own"
_KERNEL = "the host decides it for all containers"
_NETWORK = "workloads of a GVC share one network; firewallConfig decides who reaches a workload"
_NAMES = "workloads are found by their names, which are those of the services"
_CPU = "see cpu of the container"
_PLACES = "workloads run at the locations of their GVC"
_LOGS = "logs are collected by themselves: platform logs"
_RESTARTS = "containers that end are started again, with increasing waits"
_DNS = "use names that resolve everywhere"
_FILES = "every user of the container reads the file"

LEFT_OUT = {
    "configs.*.template_driver": "write the text itself",
    "networks": _NETWORK,
    "secrets.*.driver": "write the value to a file",
    "secrets.*.template_driver": "write the text itself",
    "services.*.annotations": "see tags of the workload",
    "services.*.blkio_config": _KERNEL,
    "services.*.build": "build and push the image",
    "services.*.cap_add": _RIGHTS,
    "services.*.cap_drop": _RIGHTS,
    "services.*.cgroup": _KERNEL,
    "services.*.cgroup_parent": _KERNEL,
    "services.*.configs.gid": _FILES,
    "services.*.configs.mode": _FILES,
    "services.*.configs.uid": _FILES,
    "services.*.container_name": _NAMES,
    "services.*.cpu_count": _CPU,
    "services.*.cpu_percent": _CPU,
    "services.*.cpu_period": _CPU,
    "services.*.cpu_quota": _CPU,
    "services.*.cpu_rt_period": _CPU,
    "services.*.cpu_rt_runtime": _CPU,
    "services.*.cpu_shares": _CPU,
    "services.*.cpuset": _CPU,
    "services.*.credential_spec": "mount the account as a secret",
    "services.*.depends_on.*.restart": "a dependency that restarts does not restart the workload",
    "services.*.deploy.endpoint_mode": _NETWORK,
    "services.*.deploy.placement": _PLACES,
    "services.*.deploy.resources.limits.pids": _KERNEL,
    "services.*.deploy.resources.reservations.cpus": "the limit is reserved too",
    "services.*.deploy.resources.reservations.devices": "containers have no devices of the machine",
    "services.*.deploy.resources.reservations.generic_resources": "containers have no devices of the machine",
    "services.*.deploy.resources.reservations.memory": "the limit is reserved too",
    "services.*.deploy.restart_policy": _RESTARTS,
    "services.*.deploy.restart_policy.condition": _RESTARTS,
    "services.*.deploy.restart_policy.delay": _RESTARTS,
    "services.*.deploy.restart_policy.max_attempts": _RESTARTS,
    "services.*.deploy.restart_policy.window": _RESTARTS,
    "services.*.deploy.rollback_config": "a rollout that fails pauses; revert the change to go back",
    "services.*.deploy.update_config": "see rolloutOptions",
    "services.*.deploy.update_config.delay": "see rolloutOptions.minReadySeconds",
    "services.*.deploy.update_config.failure_action": "a rollout that fails pauses",
    "services.*.deploy.update_config.max_failure_ratio": "a rollout that fails pauses",
    "services.*.deploy.update_config.monitor": "see rolloutOptions.minReadySeconds",
    "services.*.develop": "it concerns docker compose watch only",
    "services.*.device_cgroup_rules": "containers have no devices of the machine",
    "services.*.devices": "containers have no devices of the machine",
    "services.*.dns": _DNS,
    "services.*.dns_opt": _DNS,
    "services.*.dns_search": _DNS,
    "services.*.domainname": _NAMES,
    "services.*.driver_opts": _NETWORK,
    "services.*.external_links": "write the address into a variable",
    "services.*.extra_hosts": _DNS,
    "services.*.gpus": "containers have no devices of the machine",
    "services.*.group_add": "see securityOptions.filesystemGroupId",
    "services.*.healthcheck.start_interval": "see readinessProbe.periodSeconds",
    "services.*.hostname": _NAMES,
    "services.*.init": "let the image begin with an init such as tini if its program leaves zombies",
    "services.*.ipc": _KERNEL,
    "services.*.isolation": _KERNEL,
    "services.*.label_file": "see tags of the workload",
    "services.*.links": _NAMES,
    "services.*.logging": _LOGS,
    "services.*.mac_address": _NETWORK,
    "services.*.mem_swappiness": _KERNEL,
    "services.*.memswap_limit": _KERNEL,
    "services.*.models": "deploy the model as a workload",
    "services.*.network_mode": _NETWORK,
    "services.*.networks": _NETWORK,
    "services.*.oom_kill_disable": _KERNEL,
    "services.*.oom_score_adj": _KERNEL,
    "services.*.pid": _KERNEL,
    "services.*.pids_limit": _KERNEL,
    "services.*.platform": "managed locations run images for linux/amd64",
    "services.*.ports.mode": "requests are balanced over all replicas",
    "services.*.ports.name": "see ports of the container",
    "services.*.post_start.environment": "set the variable in the command",
    "services.*.post_start.privileged": _RIGHTS,
    "services.*.post_start.user": "the command runs as the user of the container",
    "services.*.post_start.working_dir": "begin the command with cd",
    "services.*.pre_stop.environment": "set the variable in the command",
    "services.*.pre_stop.privileged": _RIGHTS,
    "services.*.pre_stop.user": "the command runs as the user of the container",
    "services.*.pre_stop.working_dir": "begin the command with cd",
    "services.*.privileged": _RIGHTS,
    "services.*.provider": "write what it provides as a service, or as a secret",
    "services.*.pull_policy": "see supportDynamicTags",
    "services.*.pull_refresh_after": "see supportDynamicTags",
    "services.*.read_only": "the program can write outside of volumes; what it writes there goes with the replica",
    "services.*.restart": _RESTARTS,
    "services.*.runtime": _KERNEL,
    "services.*.secrets.gid": _FILES,
    "services.*.secrets.mode": _FILES,
    "services.*.secrets.uid": _FILES,
    "services.*.security_opt": _RIGHTS,
    "services.*.shm_size": "mount scratch://shm at a path of the program's choice",
    "services.*.stdin_open": "platform workload connect opens a terminal",
    "services.*.stop_signal": "the program gets SIGTERM; a preStop hook can send another signal",
    "services.*.storage_opt": "a replica has 1 GB of its own, and 1 GB more for each core above the first",
    "services.*.sysctls": _KERNEL,
    "services.*.tty": "platform workload connect opens a terminal",
    "services.*.ulimits": _KERNEL,
    "services.*.use_api_socket": "use the API of the platform: PLATFORM_ENDPOINT and PLATFORM_TOKEN",
    "services.*.userns_mode": _KERNEL,
    "services.*.uts": _KERNEL,
    "services.*.volumes.bind": "a file of the project becomes a secret",
    "services.*.volumes.mode": "mounts have no options",
    "services.*.volumes.tmpfs": "the directory counts as ephemeral storage",
    "services.*.volumes.volume": "a whole volume is mounted, which begins empty",
    "services.*.volumes_from": "mount the volume in one service, which serves its files to the others",
    "volumes.*.driver": "a volume set begins empty: copy the data of the volume",
    "volumes.*.driver_opts": "a volume set begins empty: copy the data of the volume",
}
"""Form of a field without a counterpart → what to do instead. The value decides about fields in two tables."""

KNOWN = CARRIED.keys() | SAME_HERE.keys() | LEFT_OUT.keys()


def _fields_below() -> dict[tuple[str, ...], tuple[str, ...]]:
    """The names of fields, by the steps to the field that has them. The tables' own names have no dots."""
    children: dict[tuple[str, ...], set[str]] = {}
    for field in KNOWN:
        steps = tuple(field.split("."))
        for end in range(len(steps)):
            children.setdefault(steps[:end], set()).add(steps[end])
    return {steps: tuple(sorted(names)) for steps, names in children.items()}


_FIELDS_BELOW = _fields_below()
_SAME_HERE = {tuple(field.split(".")): values for field, values in SAME_HERE.items()}
_LEFT_OUT = {tuple(field.split(".")): instead for field, instead in LEFT_OUT.items()}
_EXTENSION = "x-"
_NAMING = ("depends_on", "networks")
"""Fields of a service with the names of resources."""


def steps_of(at: Pointer) -> tuple[str, ...]:
    """``("services", "*", "ports", "target")`` for the path of a value: without the numbers of lists and the names of
    resources. The tables write it with dots, which names of fields do not have, but keys of other people do."""
    steps = ["*" if depth == 1 and at[0] in SECTIONS else str(step) for depth, step in enumerate(at)]
    if len(at) > 3 and at[2] in _NAMING:
        steps[3] = "*"
    return tuple(step for step, part in zip(steps, at, strict=True) if isinstance(part, str))


def note_unused_fields(root: Field) -> None:
    """Note every field below ``root`` that was not used and has a meaning."""
    for left in _list_unused_fields(root):
        _note_unused_field(left)


def _list_unused_fields(part: Field) -> Iterator[Field]:
    """The topmost unused parts below ``part``, unless they match the platform's behaviour."""
    value = part.value
    for step, member in value.items() if isinstance(value, dict) else enumerate(value):
        field = Field(part.sheet, (*part.at, step), member)
        if field.at in part.sheet.whole:
            continue
        if field.at not in part.sheet.seen:
            if not _is_same_here(field):
                yield field
        elif isinstance(member, dict | list):
            yield from _list_unused_fields(field)


def _is_same_here(part: Field) -> bool:
    accepted = _SAME_HERE.get(steps_of(part.at), ())
    if ANY in accepted:
        return True
    if bool in map(type, accepted) and isinstance(part.value, str):
        return part.flag() in accepted
    return any(type(part.value) is type(value) and part.value == value for value in accepted)


def _note_unused_field(part: Field) -> None:
    name, here = part.at[-1], steps_of(part.at)
    if str(name).startswith(_EXTENSION):
        part.add_note("compose-extension", f"`{name}` has no meaning by itself; aliases of it do", on_key=True)
    elif part.at[0] == "networks" or here == ("services", "*", "networks"):
        part.add_note("compose-network", f"`{name}` has no counterpart", _NETWORK, on_key=True)
    elif isinstance(name, int):
        part.add_note(
            "convert-left-out", f"an entry of `{_get_field_name(part.at)}` has no counterpart and is left out"
        )
    else:
        instead = _LEFT_OUT.get(here) or _suggest_field(here)
        part.add_note("convert-left-out", f"`{name}` has no counterpart and is left out", instead, on_key=True)


def _suggest_field(steps: tuple[str, ...]) -> str:
    """The field beside the one at ``steps`` whose name is meant."""
    *above, name = steps
    beside = _FIELDS_BELOW.get(tuple(above), ())
    near = find_closest_word(name, beside) if name not in beside else None
    return f"did you mean `{near}`?" if near else ""


def _get_field_name(at: Pointer) -> str:
    return str(next((step for step in reversed(at) if isinstance(step, str)), "document"))
