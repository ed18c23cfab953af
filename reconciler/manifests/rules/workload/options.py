"""Rules for the options of a workload, by default and at single locations."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import RESOURCE_METRICS, Options, Specification, Workload

TYPE: Pointer = ("spec", "type")
DEFAULTS: Pointer = ("spec", "defaultOptions")
LOCAL: Pointer = ("spec", "localOptions")


def options_of(spec: Specification) -> tuple[Options, ...]:
    """The default options of a workload, then those of its locations; a cron workload has none of those."""
    if not spec.local_options or spec.type == "cron":
        return (spec.default_options,)
    return (spec.default_options, *spec.local_options)


def place_of(number: int) -> Pointer:
    """The pointer to the options with this number in ``options_of``."""
    return (*LOCAL, number - 1) if number else DEFAULTS


@register_rule("capacity-ai-cpu", "docs/platform/workload.md#capacity-ai", Kind.WORKLOAD)
def capacity_ai_beside_cpu(workload: Workload) -> Iterator[Flaw]:
    """Capacity AI is off with the metrics `cpu` and `memory`.

    Capacity AI changes what a container may use, and the metric is the used share of that, so the two would work
    against each other.
    """
    spec = workload.spec
    for number, options in enumerate(options_of(spec)):
        metric = options.autoscaling.metric
        if options.capacity_ai and metric in RESOURCE_METRICS and spec.type != "cron":
            at = place_of(number)
            message = f"capacityAI cannot be on with the metric `{metric}`"
            hint = "write `capacityAI: false`, or choose another metric"
            yield Flaw((*at, "capacityAI"), message, hint, (TYPE, (*at, "autoscaling", "metric")))


@register_rule("capacity-ai-cron", "docs/platform/workload.md#capacity-ai", Kind.WORKLOAD)
def capacity_ai_of_cron(workload: Workload) -> Iterator[Flaw]:
    """A cron workload has no Capacity AI.

    Its containers run for a while and end: there is no steady use to adapt to.
    """
    if workload.spec.type == "cron" and workload.spec.default_options.capacity_ai:
        at = (*DEFAULTS, "capacityAI")
        yield Flaw(
            at, "capacityAI is never on for a cron workload", "write `capacityAI: false`, or leave it out", (TYPE,)
        )


@register_rule("local-options-cron", "docs/platform/workload.md#options-of-one-location", Kind.WORKLOAD)
def local_options_of_cron(workload: Workload) -> Iterator[Flaw]:
    """A cron workload has no options for single locations.

    It runs at every location of its GVC with the same options.
    """
    if workload.spec.local_options and workload.spec.type == "cron":
        hint = "remove them; options for all locations belong in defaultOptions"
        yield Flaw(LOCAL, "a cron workload takes no localOptions", hint, (TYPE,), on_key=True)


@register_rule("local-options-duplicate", "docs/platform/workload.md#options-of-one-location", Kind.WORKLOAD)
def local_options_twice(workload: Workload) -> Iterator[Flaw]:
    """A location has one entry in `localOptions`.

    An entry replaces all default options at its location, and only one entry can.
    """
    entries = workload.spec.local_options
    if len(entries) < 2 or workload.spec.type == "cron":
        return
    first: dict[str, int] = {}
    for number, options in enumerate(entries):
        name = options.location.rpartition("/")[2]
        earlier = first.setdefault(name, number)
        if name and earlier != number:
            message = f"the location {quote_text(name)} already has options, in entry {earlier + 1}"
            also = (TYPE, (*LOCAL, earlier, "location"))
            yield Flaw((*LOCAL, number, "location"), message, "put both entries into one", also)
