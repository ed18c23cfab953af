"""Converts a service to a workload, with the parts that the other modules convert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from reconciler.convert.compose import containers
from reconciler.convert.compose.mounts import ComposeVolumes
from reconciler.convert.compose.ports import Addresses, ComposePort, has_port, ports_of
from reconciler.convert.compose.project import Addition, Project
from reconciler.convert.compose.stored_files import StoredFiles
from reconciler.convert.compose.values import Field
from reconciler.convert.drafts import Body, Draft, DraftPlace, without_empty
from reconciler.convert.identities import identity_for
from reconciler.convert.mounts import ConvertedMount, is_volumeset
from reconciler.convert.names import Names, container_name
from reconciler.model.key import Kind

_DEPENDS_ON = "reconciler/depends-on"
_COMPLETED = "service_completed_successfully"
_CONDITIONS = ("service_started", "service_healthy", _COMPLETED)
_NO_RESTART = ("no", "none", "false")
_NEVER = "0 0 1 1 *"
"""The schedule of a suspended workload that has none."""
_GRACE_SECONDS = 90
_ANYWHERE = "0.0.0.0/0"


class _Container(NamedTuple):
    """A container of a workload, its ports and mounts, and the secrets that it reads."""

    body: Body
    ports: list[ComposePort]
    mounts: list[ConvertedMount]
    secrets: set[str]


class ComposeServices:
    """The services of a project as workloads of one GVC."""

    def __init__(self, root: Field, project: Project, gvc: str) -> None:
        self.drafts: list[Draft] = []
        self._names = Names()
        self._gvc = gvc
        self._project = project
        every = dict(root["services"].fields())
        grouped = {member for members in project.groups.values() for member in members}
        self._provided = {name: part for name, part in every.items() if part.peek("provider")}
        self._parts = {name: part for name, part in every.items() if name not in self._provided}
        self._addresses = Addresses({name: part.value for name, part in self._parts.items()})
        self.files = StoredFiles(root, project, self._names)
        self.volumes = ComposeVolumes(root, gvc, self._names, self.files)
        awaited = {name for name, condition in self._list_dependencies() if condition == _COMPLETED}
        self._once = {*self._one_shots()} - awaited
        self._jobs = {name for name, part in self._parts.items() if _is_job(part)} | awaited | self._once
        self._workloads = {
            name: self._name_workload(name, part) for name, part in self._parts.items() if name not in grouped
        }
        for group, members in project.groups.items():
            self._workloads |= dict.fromkeys(members, self._name_workload(group, self._parts[members[0]]))
        self._dependencies = {name: self._depends_on(name, part) for name, part in self._parts.items()}
        self.order = self._order_workloads()

    def convert(self) -> None:
        """Add the drafts of all services."""
        for name, part in self._provided.items():
            part.ignore()
            part.add_note("convert-left-out", f"{name} is no container, and is left out", on_key=True)
        for part in self._parts.values():
            if isinstance(part.value, dict):
                part["profiles"].ignore()
            else:
                part.ignore()
                part.add_note("convert-malformed", f"the service {part.at[-1]} is not a mapping", on_key=True)
        for workload, members in self._members().items():
            self._add(workload, members)

    def _members(self) -> dict[str, list[str]]:
        """Workload → its services, mostly one."""
        groups: dict[str, list[str]] = {}
        for name, part in self._parts.items():
            if isinstance(part.value, dict):
                groups.setdefault(self._workloads[name], []).append(name)
        return groups

    def _add(self, workload: str, members: list[str]) -> None:
        """Add the workload with the containers of ``members``, mostly one; the first one decides what is not theirs."""
        name, part = members[0], self._parts[members[0]]
        is_job = name in self._jobs
        pod_containers = [
            self._container(workload, member, member if members[1:] else "", is_job=is_job) for member in members
        ]
        ports = [port for container in pod_containers for port in container.ports]
        is_stateful = not is_job and any(
            is_volumeset(mount) for container in pod_containers for mount in container.mounts
        )
        spec: Body = {
            "type": "cron" if is_job else "stateful" if is_stateful else "standard",
            "identityLink": self._identity(
                workload, {secret for container in pod_containers for secret in container.secrets}
            ),
            "containers": [container.body for container in pod_containers],
            **(self._job(name, part) if is_job else _build_running_options(part, is_stateful=is_stateful)),
            "securityOptions": containers.convert_security_options(part),
            "firewallConfig": _build_firewall(ports, is_stateful=is_stateful),
        }
        addition = self._project.additions.get(name, Addition())
        body: Body = {
            "kind": "workload",
            "name": workload,
            "description": addition.description,
            "gvc": self._gvc,
            "tags": self._tags(members),
            "spec": without_empty(spec),
        }
        self.drafts.append(Draft(Kind.WORKLOAD, self._gvc, workload, without_empty(body), DraftPlace("", 0, part.at)))

    def _container(self, workload: str, name: str, scope: str, *, is_job: bool) -> _Container:
        part, addition = self._parts[name], self._project.additions.get(name, Addition())
        ports = [] if is_job else ports_of(name, part, self._addresses)
        mounts, secrets = self.volumes.mounts(name, part, is_job=is_job, stored=addition.mounted, scope=scope)
        environ = self._project.environ
        env, read = containers.convert_variables(part, self.files, environ, ports, addition.secrets)
        body: Body = {
            "name": container_name(name),
            "image": containers.convert_image(workload, part),
            "workingDir": _convert_working_directory(part["working_dir"]),
            **containers.convert_command(part),
            **containers.convert_resources(part),
            "ports": [{"number": port.number, "protocol": port.protocol} for port in ports],
            "env": env,
            "volumes": [{"uri": mount.uri, "path": mount.path} for mount in mounts],
            "readinessProbe": {} if is_job else addition.probe or containers.convert_health_check(part),
            "lifecycle": containers.convert_hooks(part),
        }
        _note_grace(part["stop_grace_period"])
        return _Container(without_empty(body), ports, mounts, secrets | read)

    def domains(self) -> Iterator[Draft]:
        """The domains of the project, each with routes to its workloads."""
        routes: dict[str, list[Body]] = {}
        # The longest prefix first: the first route that fits counts.
        for host in sorted(self._project.hosts, key=lambda candidate: -len(candidate.prefix)):
            link = f"//gvc/{self._gvc}/workload/{self._workloads[host.service]}"
            route = {"workloadLink": link, "prefix": host.prefix, "port": host.port}
            routes.setdefault(host.name, []).append(route)
        first = {host.name: self._parts[host.service].at for host in reversed(self._project.hosts)}
        for name, own_routes in routes.items():
            spec = {"ports": [{"number": 443, "protocol": "http2", "routes": own_routes}]}
            yield Draft(
                Kind.DOMAIN, "", name, {"kind": "domain", "name": name, "spec": spec}, DraftPlace("", 0, first[name])
            )

    def _job(self, name: str, part: Field) -> Body:
        """The ``job`` of a service that runs to its end: suspended, to be run on demand, unless it has a schedule."""
        schedule = self._project.additions.get(name, Addition()).schedule
        if schedule:
            pass
        elif name in self._once:
            part.add_note(
                "convert-job",
                f"{name} has no port and is not started again, so it becomes a cron workload that runs on demand",
                "platform workload cron start runs it; with a port in `expose` it always runs",
                on_key=True,
            )
        else:
            part.add_note(
                "convert-job",
                f"{name} runs to its end, so it becomes a cron workload that runs on demand",
                "platform workload cron start runs it",
                on_key=True,
            )
        part["deploy"]["mode"].text()
        restart = part["deploy"]["restart_policy"]["condition"] or part["restart"]
        restarts = _find_restart_policy(part) not in _NO_RESTART
        if part["healthcheck"]:
            part["healthcheck"].ignore()
            part["healthcheck"].add_note("convert-left-out", "a cron workload has no probes", on_key=True)
        for field in ("ports", "expose"):
            if part[field]:
                part[field].ignore()
                part[field].add_note("convert-left-out", "a cron workload has no ports", on_key=True)
        policy = "OnFailure" if restart and restarts else "Never"
        timing = {"schedule": schedule} if schedule else {"schedule": _NEVER, "suspend": True}
        return {"job": {**timing, "restartPolicy": policy}}

    def _name_workload(self, name: str, part: Field) -> str:
        text = self._names.take(Kind.WORKLOAD, self._gvc, (name,))
        if text != name:
            part.add_note("convert-name", f"the service {name} becomes the workload {text}", on_key=True)
        return text

    def _identity(self, workload: str, secrets: set[str]) -> str:
        if not secrets:
            return ""
        identity, drafts = identity_for(self._gvc, workload, secrets, {}, self._names)
        self.drafts += drafts
        return f"//identity/{identity}"

    def _tags(self, members: list[str]) -> dict[str, str]:
        own = self._workloads[members[0]]
        workloads = dict.fromkeys(self._workloads[text] for name in members for text in self._dependencies[name])
        needed = [f"workload/{self._gvc}/{text}" for text in workloads if text != own]
        tags = {
            name: value for member in members for name, value in containers.convert_labels(self._parts[member]).items()
        }
        return tags | ({_DEPENDS_ON: ",".join(needed)} if needed else {})

    def _list_dependencies(self) -> Iterator[tuple[str, str]]:
        """The services that others depend on, with the condition for which these wait."""
        for part in self._parts.values():
            needed = part.peek("depends_on")
            for name, value in needed.items() if isinstance(needed, dict) else ():
                condition = value.get("condition") if isinstance(value, dict) else None
                yield name, condition if isinstance(condition, str) else _CONDITIONS[0]

    def _one_shots(self) -> Iterator[str]:
        """The services that are not started again, and that nothing reaches, checks or depends on."""
        needed = {name for name, _ in self._list_dependencies()}
        for name, part in self._parts.items():
            is_used = name in needed or part.peek("healthcheck") or has_port(name, part, self._addresses)
            if not is_used and _find_restart_policy(part) in _NO_RESTART:
                yield name

    def _depends_on(self, name: str, service: Field) -> list[str]:
        """The services that must be healthy before ``name`` begins."""
        dependencies = []
        for needed, part in service["depends_on"].fields():
            condition = part["condition"].text(_CONDITIONS[0]) if part else _CONDITIONS[0]
            optional = bool(part) and part["required"].value is not None and not part["required"].flag()
            if condition not in _CONDITIONS:
                part["condition"].add_note("convert-malformed", f"a condition is one of {', '.join(_CONDITIONS)}")
            elif needed not in self._parts:
                self._note_missing(needed, part, optional=optional)
            elif needed in self._jobs:
                part.add_note(
                    "convert-left-out",
                    f"{name} does not wait for the end of {needed}",
                    f"run it first: platform workload cron start {self._workloads[needed]}",
                    on_key=True,
                )
            else:
                dependencies.append(needed)
        return dependencies

    def _note_missing(self, needed: str, part: Field, *, optional: bool) -> None:
        if optional or needed in self._project.inactive or needed in self._provided:
            part.add_note("convert-left-out", "a service is left out, and so is this dependency on it", on_key=True)
        else:
            part.add_note("convert-malformed", "there is no service of this name to depend on", on_key=True)

    def _order_workloads(self) -> dict[str, int]:
        """Workload → its place in an order in which dependencies come first."""
        try:
            order = [*TopologicalSorter(self._dependencies).static_order()]
        except CycleError as error:
            first = error.args[1][0]
            self._parts[first]["depends_on"].add_note("convert-malformed", f"the service {first} waits for itself")
            order = [*self._parts]
        return {self._workloads[name]: index for index, name in enumerate(order)}


def _is_job(part: Field) -> bool:
    deploy = part.peek("deploy")
    return isinstance(deploy, dict) and deploy.get("mode") in ("replicated-job", "global-job")


def _convert_working_directory(part: Field) -> str:
    if part.text() and not part.text().startswith("/"):
        part.add_note("convert-left-out", "a working directory is an absolute path; the image's counts")
        return ""
    return part.text()


def _find_restart_policy(part: Field) -> str:
    """The restart policy of a service; that of `deploy` wins. "" where there is none."""
    deploy = part.peek("deploy")
    policy = deploy.get("restart_policy") if isinstance(deploy, dict) else None
    condition = policy.get("condition") if isinstance(policy, dict) else None
    restart = part.peek("restart") if condition is None else condition
    return "no" if restart is False else restart.partition(":")[0] if isinstance(restart, str) else ""


def _build_running_options(part: Field, *, is_stateful: bool) -> Body:
    """The scale and rollout of a service that runs continuously."""
    deploy = part["deploy"]
    if deploy["mode"].text("replicated") == "global":
        deploy["mode"].add_note("convert-changed", "each location has the same number of replicas, one unless set")
    elif deploy["mode"].text("replicated") != "replicated":
        deploy["mode"].add_note("convert-malformed", "`mode` is replicated, global, replicated-job or global-job")
    field = deploy["replicas"] if deploy["replicas"] else part["scale"]
    count = field.number()
    if count is not None and not 0 <= count <= _MOST_REPLICAS:
        field.add_note("convert-malformed", f"a number of replicas is from 0 to {_MOST_REPLICAS}")
        count = 1
    scale = 1 if count is None else count
    options: Body = {"autoscaling": {"metric": "disabled", "minScale": max(scale, 1), "maxScale": max(scale, 1)}}
    if scale == 0:
        options["suspend"] = True
    return {"defaultOptions": options, "rolloutOptions": {} if is_stateful else _build_rollout_options(deploy)}


_MOST_REPLICAS = 10_000


def _build_rollout_options(deploy: Field) -> Body:
    update = deploy["update_config"]
    if not update["order"] and not update["parallelism"]:
        return {}
    batch = update["parallelism"].number()
    surge: int | str = "100%" if batch == 0 else max(batch or 1, 1)
    if update["order"].text("stop-first") == "start-first":
        return {"maxSurgeReplicas": surge}
    return {"maxUnavailableReplicas": surge, "maxSurgeReplicas": 0}


def _build_firewall(ports: list[ComposePort], *, is_stateful: bool) -> Body:
    """Open to the GVC for any port, to the world for a published one (docs/platform/workload.md#firewall)."""
    if not ports:
        return {}
    is_open = not is_stateful and any(port.is_open for port in ports)
    external: Mapping[str, Body] = {"external": {"inboundAllowCIDR": [_ANYWHERE]}} if is_open else {}
    return {**external, "internal": {"inboundAllowType": "same-gvc"}}


def _note_grace(part: Field) -> None:
    if (part.seconds() or 0) > _GRACE_SECONDS:
        part.add_note("convert-changed", f"a replica has up to {_GRACE_SECONDS} seconds to end")
