"""Rules for the number of replicas: the metrics and the minimum of each type of workload."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.manifests.rules.workload.options import TYPE, options_of, place_of
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import RESOURCE_METRICS, Workload, metric_of

METRICS = {
    "serverless": ("disabled", "concurrency", "rps", "cpu", "memory"),
    "standard": ("disabled", "rps", "cpu", "memory", "latency"),
    "stateful": ("disabled", "rps", "cpu", "memory", "latency"),
}
"""Type of a workload → its metrics; for a cron workload no metric has an effect."""

REQUEST_METRICS = frozenset({"concurrency", "rps", "latency"})
"""Metrics that count requests."""

TO_ZERO = frozenset({"rps", "concurrency"})
"""Metrics with which a serverless workload can scale up from zero."""
MOST_PERCENT = 100


def _metric_rests_on(at: Pointer) -> tuple[Pointer, ...]:
    """The metric, and what it follows from where it is left out."""
    return (TYPE, (*at, "capacityAI"), (*at, "autoscaling", "metric"))


@register_rule("autoscaling-metric", "docs/platform/workload.md#scaling-strategies", Kind.WORKLOAD)
def metric_of_another_type(workload: Workload) -> Iterator[Flaw]:
    """The type of the workload supports the metric.

    A serverless workload cannot scale by `latency`. A standard or a stateful one cannot scale by `concurrency`.
    """
    spec = workload.spec
    for number, options in enumerate(options_of(spec)):
        metric = options.autoscaling.metric
        if metric and metric not in METRICS.get(spec.type, (metric,)):
            message = f"a {spec.type} workload cannot scale by {quote_text(metric)}"
            hint = f"allowed: {', '.join(METRICS[spec.type])}"
            yield Flaw((*place_of(number), "autoscaling", "metric"), message, hint, (TYPE,))


@register_warning("autoscaling-cron", "docs/platform/workload.md#types", Kind.WORKLOAD)
def metric_of_a_cron(workload: Workload) -> Iterator[Flaw]:
    """A cron workload has no metric of requests.

    It serves no requests, and its schedule decides when it runs. The metric has no effect.
    """
    options = workload.spec.default_options
    metric = options.autoscaling.metric
    if workload.spec.type == "cron" and metric in REQUEST_METRICS:
        message = f"the metric {quote_text(metric)} has no effect: a cron workload serves no requests"
        yield Flaw((*place_of(0), "autoscaling", "metric"), message, "remove it", (TYPE,))


@register_rule("autoscaling-cpu-target", "docs/platform/workload.md#autoscaling", Kind.WORKLOAD)
def more_than_all_cpu(workload: Workload) -> Iterator[Flaw]:
    """The target is at most 100 for the metrics `cpu` and `memory`.

    It is a percentage of what the container may use; a higher one is never reached, so nothing would ever scale.
    """
    for number, options in enumerate(options_of(workload.spec)):
        target, metric = options.autoscaling.target, metric_of(workload.spec.type, options)
        if target > MOST_PERCENT and metric in RESOURCE_METRICS:
            at = place_of(number)
            message = f"the target {target} is more than 100 percent of the {metric}"
            hint = "write a percentage from 1 to 100"
            yield Flaw((*at, "autoscaling", "target"), message, hint, _metric_rests_on(at))


@register_rule("autoscaling-percentile", "docs/platform/workload.md#autoscaling", Kind.WORKLOAD)
def percentile_of_no_latency(workload: Workload) -> Iterator[Flaw]:
    """A percentile is set only with the metric `latency`.

    It selects the response time that counts. No other metric has percentiles.
    """
    for number, options in enumerate(options_of(workload.spec)):
        if not options.autoscaling.metric_percentile:
            continue
        metric = metric_of(workload.spec.type, options)
        if metric != "latency":
            which = quote_text(metric) if options.autoscaling.metric else f"{quote_text(metric)}, the default here"
            message = f"metricPercentile is for the metric `latency`, and this one is {which}"
            at = place_of(number)
            able = "latency" in METRICS.get(workload.spec.type, ())
            hint = "remove it, or write `metric: latency`" if able else "remove it"
            yield Flaw((*at, "autoscaling", "metricPercentile"), message, hint, _metric_rests_on(at))


@register_rule("autoscaling-scale", "docs/platform/workload.md#autoscaling", Kind.WORKLOAD)
def more_at_least_than_at_most(workload: Workload) -> Iterator[Flaw]:
    """`minScale` is at most `maxScale`.

    Left out, they are 1 and 5.
    """
    for number, options in enumerate(options_of(workload.spec)):
        least, most = options.autoscaling.min_scale, options.autoscaling.max_scale
        if least <= most:
            continue
        at = place_of(number)
        fields: list[Pointer] = [(*at, "autoscaling", "minScale"), (*at, "autoscaling", "maxScale")]
        if least == 1:
            # If it is left out, the other one is in the manifest.
            fields.reverse()
        hint = f"raise maxScale to at least {least}" if most else "to stop a workload, write `suspend: true` instead"
        yield Flaw(fields[0], f"minScale {least} is more than maxScale {most}", hint, (fields[1],))


@register_rule("scale-to-zero", "docs/platform/workload.md#scaling-strategies", Kind.WORKLOAD)
def zero_without_a_way_back(workload: Workload) -> Iterator[Flaw]:
    """`minScale: 0` is for serverless workloads with the metric `rps` or `concurrency`.

    Only there a request waits until a replica has started. Any other workload would stay at zero; `suspend` stops a
    workload on purpose.
    """
    type_ = workload.spec.type
    for number, options in enumerate(options_of(workload.spec)):
        if options.autoscaling.min_scale != 0:
            continue
        metric = metric_of(type_, options)
        if type_ == "serverless" and metric in TO_ZERO:
            continue
        at = place_of(number)
        message = f"a serverless workload with the metric {quote_text(metric)} cannot scale to zero"
        hint = "write `metric: rps` or `metric: concurrency`, or a minScale of at least 1"
        if type_ != "serverless":
            message = f"a {type_} workload cannot scale to zero"
            hint = "write a minScale of at least 1"
        if options.autoscaling.max_scale == 0:
            hint = "to stop a workload, write `suspend: true` instead"
        yield Flaw((*at, "autoscaling", "minScale"), message, hint, _metric_rests_on(at))
