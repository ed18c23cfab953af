"""What a cluster does not enforce of a workload: sentences of the condition NotEnforced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from reconciler.engines.kubernetes.rendering.autoscaling import (
    Scaler,
    choose_scaler,
    is_scaled,
    least_replicas,
    uses_knative,
)
from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, WorkloadInputs
from reconciler.engines.kubernetes.rendering.knative import is_whole_host
from reconciler.engines.kubernetes.rendering.route_objects import uses_gateway
from reconciler.engines.kubernetes.rendering.routes import list_route_faults, plan_routes
from reconciler.engines.kubernetes.rendering.schedules import convert_schedule
from reconciler.engines.kubernetes.rendering.services import is_open, list_ports
from reconciler.engines.kubernetes.rendering.volumes import is_file_name
from reconciler.engines.workload.environment import unset_variables
from reconciler.engines.workload.mounts import SecretMount, plan_mounts
from reconciler.engines.workload.spec import Type, uses_capacity_ai
from reconciler.errors import EngineError
from reconciler.model.kinds.volumeset import Specification as VolumeSetSpecification
from reconciler.model.kinds.workload import RESOURCE_METRICS, Retries, Workload, metric_of
from reconciler.model.no_wake import NO_WAKE
from reconciler.model.platform import POST_SNAPSHOT, PRE_SNAPSHOT, SNAPSHOT_ON, VERIFY_SCHEDULE, VERIFY_SNAPSHOT

_TAGS = {
    NO_WAKE: "every request starts a replica",
    PRE_SNAPSHOT: "no command runs before a snapshot in a cluster",
    POST_SNAPSHOT: "no command runs after a snapshot in a cluster",
    SNAPSHOT_ON: "no snapshot is taken before a new version in a cluster",
    VERIFY_SNAPSHOT: "no copy of a snapshot is checked in a cluster",
    VERIFY_SCHEDULE: "no copy of a snapshot is checked in a cluster",
}
"""Tags that have no effect here → what happens instead."""


def list_volume_limitations(
    spec: VolumeSetSpecification, features: ClusterFeatures, *, measured: bool
) -> tuple[str, ...]:
    """The sentences about a volume set. ``measured``: the cluster reports how full volumes are, or was not asked."""
    return tuple(_list_volume_limitations(spec, features, measured=measured))


def _list_volume_limitations(
    spec: VolumeSetSpecification, features: ClusterFeatures, *, measured: bool
) -> Iterator[str]:
    if not features.snapshots:
        if spec.snapshots.schedule:
            yield "No snapshot is taken by schedule: the cluster does not serve VolumeSnapshot."
        if spec.snapshots.create_final_snapshot:
            yield "No snapshot is taken before a volume is deleted: the cluster does not serve VolumeSnapshot."
    if spec.autoscaling.min_free_percentage is not None and not measured:
        yield (
            "Volumes do not grow by themselves as they fill: the cluster does not let the daemon read how full they "
            "are (get of nodes/proxy)."
        )


def list_limitations(inputs: WorkloadInputs) -> tuple[str, ...]:
    """A sentence for each part of a workload that this cluster does not enforce, in a fixed order."""
    template = inputs.template
    return (
        *template.unmodelled,
        *unset_variables(template.spec, template.env_context),
        *_list_scaling(inputs),
        *_list_containers(inputs),
        *_list_secrets(inputs),
        *_list_knative(inputs),
        *_list_firewall(inputs),
        *_list_requests(inputs),
        *_list_stores(inputs),
        *_list_schedule(inputs),
        *_list_tags(inputs),
    )


def _list_scaling(inputs: WorkloadInputs) -> Iterator[str]:
    desired = inputs.template.desired
    metric, scale = metric_of(desired.type, desired.options), desired.options.autoscaling
    if uses_capacity_ai(desired) and not desired.suspended:
        yield "Capacity AI sets no limits here: containers have the amounts of CPU and memory in the manifest."
    if uses_knative(desired, inputs.features):
        return
    if is_scaled(desired) and choose_scaler(inputs) is Scaler.NONE:
        if metric in RESOURCE_METRICS:
            source = "the cluster does not serve metrics.k8s.io, so install metrics-server"
        elif metric == "latency":
            source = "the cluster does not measure how long its responses take"
        else:
            source = "the cluster counts no requests of it: it serves neither Knative nor the HTTP add-on of KEDA"
        count = least_replicas(desired)
        yield f"Nothing scales by {metric}, so it has {count} {'replica' if count == 1 else 'replicas'}: {source}."
    if desired.type is Type.SERVERLESS and scale.min_scale == 0 and not desired.suspended:
        yield "It does not scale to zero, and one replica stays: the cluster does not serve Knative."
    if scale.max_concurrency and desired.type is not Type.CRON:
        yield "maxConcurrency is not enforced: nothing here counts the requests that a replica works on."


def _list_containers(inputs: WorkloadInputs) -> Iterator[str]:
    desired = inputs.template.desired
    if desired.dynamic_tags:
        yield "Images are not checked for updates (supportDynamicTags): only new replicas pull what a tag means."
    for container in desired.containers:
        if container.liveness is not None and container.liveness.success_threshold > 1:
            yield (
                f"The liveness probe of {container.name} succeeds with its first success: Kubernetes allows no other "
                "successThreshold."
            )
    scraped = [container.name for container in desired.containers if container.metrics is not None]
    if len(scraped) > 1:
        yield f"Metrics of {', '.join(scraped[1:])} are not announced: the annotations of a pod name one port."
    if scraped and not inputs.options.metrics_namespace:
        yield "Metrics are not scraped: the settings of the location name no namespace that may do so."


def _list_secrets(inputs: WorkloadInputs) -> Iterator[str]:
    """What cannot be had of secrets; one that is not applied fails the workload as a whole."""
    with suppress(EngineError):
        for key in inputs.template.pull_secrets:
            if inputs.reveal(key).type == "ecr":
                yield f"Images are not pulled with {key}: the type ecr needs a token of AWS, and none is requested."
        for container in inputs.template.spec.containers:
            for mount in plan_mounts(container, inputs.reveal, inputs.scheme):
                files = () if not isinstance(mount, SecretMount) or mount.single else mount.files
                for name in sorted(name for name in files if not is_file_name(name)):
                    yield f"There is no file {name[:60]} in {mount.path}: Kubernetes reserves such names."


def _list_tags(inputs: WorkloadInputs) -> Iterator[str]:
    """Tags of a workload that this engine does not read."""
    named = [tag for tag in _TAGS if tag.encode() in inputs.body]
    tags = msgspec.json.decode(inputs.body, type=Workload).tags if named else {}
    for tag in named:
        if tag in tags:
            yield f"The tag {tag} is not applied: {_TAGS[tag]}."


def _list_knative(inputs: WorkloadInputs) -> Iterator[str]:
    """What a Service of Knative has in another way."""
    desired = inputs.template.desired
    if not uses_knative(desired, inputs.features):
        return
    if any(container.pre_stop or container.post_start for container in desired.containers):
        yield "Hooks do not run (lifecycle): Knative has none."
    if len(desired.containers) > 1:
        yield "Containers do not reach each other by name, only at localhost: Knative sets no names."
    if any(container.termination_seconds is not None for container in desired.containers):
        yield "terminationGracePeriodSeconds has no effect: Knative ends a replica when its requests are answered."
    if desired.group:
        yield f"The group {desired.group} does not own the volumes: Knative has no groups."
    if desired.firewall.internal.inbound_allow_type != "same-org":
        yield "Other workloads of the cluster reach it through the gateway of Knative, whatever its firewall allows."
    first = next(iter(list_ports(inputs.template.spec)), 0)
    if any(not is_whole_host(route, first) for route in plan_routes(inputs)):
        yield "Routes with paths, other ports or all subdomains have no effect: Knative leads whole host names to it."


def _list_firewall(inputs: WorkloadInputs) -> Iterator[str]:
    external = inputs.template.desired.firewall.external
    if external.outbound_allow_hostname:
        names = ", ".join(external.outbound_allow_hostname)
        yield f"Host names open nothing ({names}): a NetworkPolicy knows addresses only."
    if external.inbound_ranges and not is_open(inputs) and list_ports(inputs.template.spec):
        yield (
            "No host name leads to it: a gateway does not compare the addresses of clients with inboundAllowCIDR, so "
            "only a workload that is open to all addresses gets routes."
        )


def _list_requests(inputs: WorkloadInputs) -> Iterator[str]:
    desired, options = inputs.template.desired, inputs.options
    ports = list_ports(inputs.template.spec)
    if not ports or desired.type is Type.CRON:
        return
    key = desired.key
    yield (
        f"The name {key.name}.{key.gvc}.platform.local is not known to other workloads: those of the same GVC reach it "
        f"as {key.name}, others as {key.name}.{inputs.namespace}."
    )
    if uses_knative(desired, inputs.features):
        return
    by_gateway = uses_gateway(inputs)
    if not by_gateway and not options.ingress_class:
        yield "The endpoint has no host names, TLS and routes: the location has neither `gateway` nor `ingressClass`."
    else:
        yield from list_route_faults(inputs, by_gateway=by_gateway)
    if not by_gateway and options.ingress_class:
        yield "Requests have the timeout of the Ingress, not timeoutSeconds: the cluster has no Gateway API."
    if desired.options.debug:
        yield "Responses do not name their replica (debug): a gateway does not know it."
    if _asks_for_retries(inputs.template.spec.request_retry_policy):
        yield "Requests are not tried again: the Gateway API has no retries that every gateway understands."


def _asks_for_retries(asked: Retries) -> bool:
    """Whether a manifest asks for retries of its own; those by default are no wish of it."""
    return bool(asked.attempts) and (asked.attempts, sorted(asked.retry_on)) != (2, sorted(Retries().retry_on))


def _list_stores(inputs: WorkloadInputs) -> Iterator[str]:
    for at in inputs.template.desired.stores:
        yield f"{at.uri} is not mounted at {at.path}: this engine mounts neither object stores nor file shares."


def _list_schedule(inputs: WorkloadInputs) -> Iterator[str]:
    job = inputs.template.desired.job
    if job is not None and convert_schedule(job.schedule) is None:
        yield (
            f"The schedule {job.schedule} does not run: it needs a day that matches both day fields, and Kubernetes "
            "takes either; write `*` into one of them."
        )
