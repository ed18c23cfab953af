"""What a cluster does not enforce of a workload: sentences of the condition NotEnforced."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engines.kubernetes.rendering.autoscaling import has_autoscaler, is_scaled, least_replicas
from reconciler.engines.kubernetes.rendering.inputs import WorkloadInputs
from reconciler.engines.kubernetes.rendering.network_policies import is_open
from reconciler.engines.kubernetes.rendering.schedules import convert_schedule
from reconciler.engines.kubernetes.rendering.services import list_ports
from reconciler.engines.workload.environment import unset_variables
from reconciler.engines.workload.spec import Type, uses_capacity_ai
from reconciler.model.kinds.workload import RESOURCE_METRICS, Retries, metric_of


def list_limitations(inputs: WorkloadInputs) -> tuple[str, ...]:
    """A sentence for each part of a workload that this cluster does not enforce, in a fixed order."""
    template = inputs.template
    return (
        *template.unmodelled,
        *unset_variables(template.spec, template.env_context),
        *_list_scaling(inputs),
        *_list_containers(inputs),
        *_list_firewall(inputs),
        *_list_requests(inputs),
        *_list_stores(inputs),
        *_list_schedule(inputs),
    )


def _list_scaling(inputs: WorkloadInputs) -> Iterator[str]:
    desired, features = inputs.template.desired, inputs.features
    metric, scale = metric_of(desired.type, desired.options), desired.options.autoscaling
    if is_scaled(desired) and not has_autoscaler(desired, features):
        if metric in RESOURCE_METRICS:
            source = "the cluster does not serve metrics.k8s.io, so install metrics-server"
        else:
            source = "the cluster counts no requests of it"
        yield f"Nothing scales by {metric}, and {_count_replicas(least_replicas(desired))} run: {source}."
    if desired.type is Type.SERVERLESS and scale.min_scale == 0 and not desired.suspended:
        yield "It does not scale to zero, and one replica stays: the cluster does not serve Knative."
    if scale.max_concurrency and desired.type is not Type.CRON:
        yield "maxConcurrency is not enforced: nothing here counts the requests that a replica works on."
    if uses_capacity_ai(desired) and not desired.suspended:
        yield "Capacity AI sets no limits here: containers have the amounts of CPU and memory in the manifest."


def _count_replicas(count: int) -> str:
    return "one replica" if count == 1 else f"{count} replicas"


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
    desired, features, options = inputs.template.desired, inputs.features, inputs.options
    ports = list_ports(inputs.template.spec)
    if not ports or desired.type is Type.CRON:
        return
    key = desired.key
    yield (
        f"The name {key.name}.{key.gvc}.platform.local is not known to other workloads: those of the same GVC reach it "
        f"as {key.name}, others as {key.name}.{inputs.namespace}."
    )
    by_gateway = features.gateway_api and bool(options.gateway)
    if not by_gateway and not options.ingress_class:
        yield "The endpoint has no host names, TLS and routes: the settings of the location name no gateway."
    elif not by_gateway:
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
