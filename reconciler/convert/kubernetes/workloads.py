"""Converts Deployment and similar kinds to workload, with the parts that the other modules convert."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from reconciler.convert.budget import Budget
from reconciler.convert.drafts import Body, Draft, make_draft, without_empty
from reconciler.convert.identities import identity_for
from reconciler.convert.kubernetes.autoscaling import Scalers
from reconciler.convert.kubernetes.bundle import JOBS, WORKLOADS, Bundle, Item
from reconciler.convert.kubernetes.claims import Claims
from reconciler.convert.kubernetes.containers import ConvertedContainer, Pod, convert_container, cpu_share
from reconciler.convert.kubernetes.env import Readings
from reconciler.convert.kubernetes.identity import PullSecrets, cloud_access
from reconciler.convert.kubernetes.jobs import convert_job, template_of
from reconciler.convert.kubernetes.mounts import Volumes
from reconciler.convert.kubernetes.namespaces import Namespaces
from reconciler.convert.kubernetes.ports import ContainerPort, Ports
from reconciler.convert.kubernetes.secrets import Secrets
from reconciler.convert.kubernetes.services import ANYWHERE, Services
from reconciler.convert.mounts import is_volumeset
from reconciler.convert.names import Names
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.key import Kind

_LARGEST_ID = 65534
_PERCENT = re.compile(r"[0-9]{1,3}%")
_FIELDS = {"maxSurge": "maxSurgeReplicas", "maxUnavailable": "maxUnavailableReplicas"}
_ALL_AT_ONCE: Body = {"maxSurgeReplicas": 0, "maxUnavailableReplicas": "100%"}


class Deployed(NamedTuple):
    """A converted workload: its place, and the ports that it serves to Services."""

    item: Item
    gvc: str
    name: str
    ports: list[ContainerPort]
    services: list[Item]


class ConversionContext(msgspec.Struct, frozen=True):
    """Shared by the workloads of one bundle; ``protocol``, if set, applies to all ports."""

    bundle: Bundle
    names: Names
    namespaces: Namespaces
    secrets: Secrets
    claims: Claims
    services: Services
    scalers: Scalers
    pulls: PullSecrets
    protocol: str
    drafts: list[Draft] = []

    @classmethod
    def of(cls, bundle: Bundle, gvc: str, protocol: str, budget: Budget) -> ConversionContext:
        """The context of ``bundle``, with secrets and volume sets converted."""
        names, namespaces = Names(), Namespaces(gvc)
        secrets = Secrets(bundle, names, budget)
        claims = Claims(bundle, names, namespaces)
        services, scalers, pulls = Services(bundle), Scalers(bundle), PullSecrets(bundle, secrets)
        return cls(bundle, names, namespaces, secrets, claims, services, scalers, pulls, protocol)


def convert_workload(item: Item, scene: ConversionContext) -> Deployed:
    """Convert ``item`` to a workload, with an identity and a policy where it reads secrets."""
    gvc = scene.namespaces.gvc(item)
    name = scene.names.take(Kind.WORKLOAD, gvc, _list_candidate_names(item, scene.bundle))
    if name != item.name:
        item.root["metadata"]["name"].add_note("convert-name", f"{item} becomes the workload {name}")
    template = template_of(item)
    services = scene.services.selecting(item, template["metadata"]["labels"].mapping())
    _mark_selector_labels(item, template["metadata"]["labels"], services)
    readings = Readings(item, scene.secrets)
    containers = _convert_containers(item, template, services, readings, scene)
    is_cron = item.kind in JOBS
    is_stateful = not is_cron and any(is_volumeset(mount) for member in containers for mount in member.mounts)
    if item.kind == "StatefulSet" and not is_stateful:
        item.root["kind"].add_note(
            "convert-changed",
            "it mounts no claim, so its replicas have no stable names",
            "write `type: stateful` if they need them",
        )
    access = cloud_access(scene.bundle, item, template["spec"])
    identity = _make_identity(gvc, name, readings, access, scene)
    scene.pulls.note(item, template["spec"], gvc)
    spec: Body = {
        "type": "cron" if is_cron else "stateful" if is_stateful else "standard",
        "identityLink": f"//identity/{identity}" if identity else "",
        "containers": [member.body for member in containers],
        **(convert_job(item) if is_cron else _build_running_options(item, template, is_stateful, scene)),
        "securityOptions": _build_security_options(template["spec"]),
        "firewallConfig": {} if is_cron else _build_firewall(services, scene.services),
    }
    scene.drafts.append(make_draft(Kind.WORKLOAD, name, gvc, item.root, {"spec": without_empty(spec)}))
    return Deployed(item, gvc, name, [port for member in containers for port in member.ports], services)


def _mark_selector_labels(item: Item, labels: TrackedValue, services: Iterable[Item]) -> None:
    """Count the labels of pods as carried by which the workload and ``services`` find them."""
    selector = item.spec.peek("selector")
    fields = selector if isinstance(selector, dict) else {}
    selectors = [fields if item.kind == "ReplicationController" else fields.get("matchLabels")]
    if not fields and item.kind not in JOBS:
        selectors = [labels.value]  # former versions of Kubernetes take the labels for the selector
    selectors += [service.spec.peek("selector") for service in services]
    asked = fields.get("matchExpressions")
    keys = [value.get("key") for value in asked if isinstance(value, dict)] if isinstance(asked, list) else []
    names = {name for selection in selectors if isinstance(selection, dict) for name in selection}.union(map(str, keys))
    labels.sheet.carried.update((*labels.at, name) for name in names)


def _list_candidate_names(item: Item, bundle: Bundle) -> tuple[str, ...]:
    """Candidate names for the workload: its own, then with the kind or the namespace added."""
    twins = [kind for kind in WORKLOADS if kind != item.kind and bundle.find(kind, item.namespace, item.name)]
    return item.name, f"{item.name}-{item.kind if twins else item.namespace}"


def _convert_containers(
    item: Item, template: TrackedValue, services: list[Item], readings: Readings, scene: ConversionContext
) -> list[ConvertedContainer]:
    pod = template["spec"]
    parts = pod["containers"].items()
    if not parts:
        pod.add_note("convert-malformed", "there is no container")
    for tracked_value in pod["initContainers"].items():
        tracked_value.ignore()
        tracked_value.add_note(
            "convert-init-container",
            f"the init container {tracked_value.peek('name')} has no counterpart and is left out",
            "do its work in the image or in the container's own command",
        )
    ports = None if item.kind in JOBS else Ports(parts, services, scene.protocol)
    volumes = Volumes(item, pod, scene.claims, readings)
    metrics = _convert_metrics(template["metadata"])
    taken: set[str] = set()
    containers = [
        convert_container(part, Pod(volumes, readings, ports, {} if index else metrics), taken)
        for index, part in enumerate(parts)
    ]
    volumes.finish()
    return containers


def _build_running_options(item: Item, template: TrackedValue, is_stateful: bool, scene: ConversionContext) -> Body:
    """Options of workloads that run continuously: scale and rollout."""
    share = max((cpu_share(part) for part in template["spec"]["containers"].items()), default=Fraction(1))
    return {
        "defaultOptions": scene.scalers.options(item, share),
        "rolloutOptions": _build_rollout_options(item, is_stateful),
    }


def _build_rollout_options(item: Item, is_stateful: bool) -> Body:
    """``rolloutOptions`` for the workload of ``item`` (docs/platform/workload.md#rollout-options)."""
    spec = item.spec
    options: Body = {"minReadySeconds": spec["minReadySeconds"].number() or None}
    for field in ("strategy", "updateStrategy"):
        options |= _convert_strategy(spec[field], is_stateful)
    policy = spec["podManagementPolicy"]
    if policy and is_stateful:
        options["scalingPolicy"] = policy.text()
    elif policy.text("OrderedReady") != "OrderedReady":
        policy.add_note(
            "convert-left-out", "only stateful workloads have a scaling policy", "mount a claim, or remove it"
        )
    return without_empty({name: value for name, value in options.items() if value is not None})


def _convert_strategy(part: TrackedValue, is_stateful: bool) -> Body:
    kind, rolling = part["type"].text("RollingUpdate"), part["rollingUpdate"]
    if kind == "Recreate":
        part["type"].add_note(
            "convert-changed", "all replicas are replaced at once, without waiting for the old ones to end"
        )
        return {"maxUnavailableReplicas": "100%"} if is_stateful else _ALL_AT_ONCE
    if kind != "RollingUpdate":
        part["type"].add_note(
            "convert-left-out", f"the strategy {kind} has no counterpart; replicas are replaced step by step"
        )
    rollout: Body = {}
    for field, name in _FIELDS.items():
        if rolling[field] and (field != "maxSurge" or not is_stateful):
            rollout[name] = _parse_amount(rolling[field])
        elif rolling[field]:
            rolling[field].add_note("convert-left-out", "a stateful workload replaces its replicas one at a time")
    return rollout


def _parse_amount(part: TrackedValue) -> int | str | None:
    """A number of replicas or a percentage."""
    if isinstance(part.value, str):
        if _PERCENT.fullmatch(part.value):
            return part.value
        part.add_note("convert-malformed", f"`{part.at[-1]}` is a whole number or a percentage")
        return None
    return part.number()


def _make_identity(gvc: str, name: str, readings: Readings, access: Body, scene: ConversionContext) -> str:
    if not readings.names and not access:
        return ""
    identity, drafts = identity_for(gvc, name, readings.names, access, scene.names)
    scene.drafts.extend(drafts)
    return identity


def _build_firewall(services: list[Item], catalog: Services) -> Body:
    """Open to its GVC for any Service, to the world for an open one (docs/platform/cli.md#what-becomes-of-a-field)."""
    if not services:
        return {}
    inbound = sorted({address for service in services for address in catalog.inbound(service)})
    if ANYWHERE in inbound:
        inbound = [ANYWHERE]
    external = {"external": {"inboundAllowCIDR": inbound}} if inbound else {}
    return {**external, "internal": {"inboundAllowType": "same-gvc"}}


def _build_security_options(pod: TrackedValue) -> Body:
    """Group of volumes, and the user, which is the same for all containers."""
    context = pod["securityContext"]
    users = [
        context["runAsUser"],
        *(tracked_value["securityContext"]["runAsUser"] for tracked_value in pod["containers"].items()),
    ]
    chosen = [user for user in users[1:] if user] or [user for user in users if user]
    if len({user.number() for user in chosen}) > 1:
        chosen[-1].add_note("convert-changed", f"all containers run as one user, {chosen[0].number()}")
    tracked_values = {
        "filesystemGroupId": context["fsGroup"],
        "runAsUser": chosen[0] if chosen else context["runAsUser"],
    }
    return {name: part.number() for name, part in tracked_values.items() if part and _is_id(part)}


def _is_id(part: TrackedValue) -> bool:
    number = part.number()
    if number is None or 0 <= number <= _LARGEST_ID:
        return number is not None
    part.add_note("convert-left-out", f"{number} is not from 0 to {_LARGEST_ID}; the value of the image is used")
    return False


def _convert_metrics(metadata: TrackedValue) -> dict[str, Any]:
    """The port and path for Prometheus, from the annotations that most charts use."""
    annotations = metadata["annotations"]
    scraped = annotations["prometheus.io/scrape"].text() == "true"
    port, path = annotations["prometheus.io/port"].text(), annotations["prometheus.io/path"].text()
    if not scraped or not port.isdigit() or not 1 <= int(port[:6]) <= 65535:
        return {}
    return without_empty({"port": int(port), "path": path if path.startswith("/") else ""})
