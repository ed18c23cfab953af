"""What each data plane does not enforce: sentences of the condition NotEnforced."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engines.host.dataplane.haproxy.program import OLDEST, Program
from reconciler.engines.host.dataplane.haproxy.rendering.retries import failures_without_retry
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.model.kinds.workload import metric_of

NOT_COUNTED = ("rps", "latency")
"""Scaling metrics that need a view of the requests inside a connection."""


def builtin_limitations(spec: WorkloadSpec, service: Service | None) -> Iterator[str]:
    """What a forwarder of connections does not enforce of ``spec``, which is served as ``service`` if it is."""
    scale, metric = spec.options.autoscaling, metric_of(spec.type, spec.options)
    scales = not spec.suspended and scale.min_scale < scale.max_scale
    if metric in NOT_COUNTED and scales:
        yield f"Requests are not counted here: nothing scales by {metric}, and at least one replica stays."
    if metric == "concurrency" and scales:
        yield "Concurrency is the number of open connections: the built-in data plane counts no requests."
    if service is not None and service.no_wake and scale.min_scale == 0:
        yield "The tag reconciler/no-wake is not applied: every connection starts a replica."
    if service is not None and service.split:
        yield "Requests are not split by version: the built-in data plane forwards connections to all ready replicas."
    if service is not None:
        yield (
            "The endpoint is one port of 127.0.0.1, without host names, TLS, routes, request timeouts and retries: the "
            "built-in data plane forwards connections, while the daemon runs."
        )


def haproxy_limitations(service: Service, program: Program | None, *, outside: bool) -> Iterator[str]:
    """What ``program`` is not used for yet, or cannot do; ``outside``: there is an ingress."""
    if not outside:
        yield "The endpoint is one port of 127.0.0.1, without host names, TLS and routes: the location has no ingress."
    elif program is not None and not program.tls:
        yield "The ingress takes requests without TLS only: the installed HAProxy lacks OpenSSL."
    if program is not None and not program.lua:
        yield "Requests wait for the end of a hold no longer than for a replica: the installed HAProxy lacks Lua."
    version = program.version if program is not None else OLDEST
    if names := failures_without_retry(service, version):
        yield f"Requests are not tried again after {', '.join(names)}: HAProxy does not retry these failures."
