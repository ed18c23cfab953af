"""Rules for the firewall: entries that contradict each other, or that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import cross_rule, register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.manifests.rules.workload.options import TYPE
from reconciler.model.finding import Flaw, Lookup, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Workload
from reconciler.model.resource import GVC_PLACEHOLDER, LookupRequest

EXTERNAL: Pointer = ("spec", "firewallConfig", "external")
INTERNAL: Pointer = ("spec", "firewallConfig", "internal")
INBOUND_TYPE: Pointer = (*INTERNAL, "inboundAllowType")
WORKLOADS: Pointer = (*INTERNAL, "inboundAllowWorkload")
OPEN_TO_HOST_NAMES = frozenset({80, 443, 445})
EVERYWHERE = "0.0.0.0/0"
LISTED = "workload-list"
FOREIGN = "tcp ports can be reached from the same GVC only"


@register_warning("firewall-port", "docs/platform/workload.md#outbound-traffic", Kind.WORKLOAD)
def port_closed_to_host_names(workload: Workload) -> Iterator[Flaw]:
    """`outboundAllowPort` names the ports 80, 443 and 445 only.

    Host names can be reached on no others. An address or a range in `outboundAllowCIDR` opens all of its ports.
    """
    for number, port in enumerate(workload.spec.firewall_config.external.outbound_allow_port):
        if port.number and port.number not in OPEN_TO_HOST_NAMES:
            message = f"port {port.number} has no effect: host names can be reached on 80, 443 and 445 only"
            hint = "for another port, list the address in outboundAllowCIDR"
            yield Flaw((*EXTERNAL, "outboundAllowPort", number, "number"), message, hint)


@register_warning("firewall-inbound-type", "docs/platform/workload.md#inbound-traffic", Kind.WORKLOAD)
def inbound_without_effect(workload: Workload) -> Iterator[Flaw]:
    """`inboundAllowCIDR` is for serverless and standard workloads.

    On a stateful or a cron workload it has no effect.
    """
    if workload.spec.firewall_config.external.inbound_allow_cidr and workload.spec.type in ("stateful", "cron"):
        message = f"inboundAllowCIDR has no effect on a {workload.spec.type} workload"
        hint = "remove it"
        if workload.spec.type == "stateful":
            hint = "remove it, and put a standard workload in front of it for requests from outside"
        yield Flaw((*EXTERNAL, "inboundAllowCIDR"), message, hint, (TYPE,), on_key=True)


@register_rule("firewall-workload-list", "docs/platform/workload.md#traffic-between-workloads", Kind.WORKLOAD)
def list_without_entries(workload: Workload) -> Iterator[Flaw]:
    """`inboundAllowType: workload-list` has a list of the workloads that may connect.

    An empty list allows no workload, which `none` states plainly.
    """
    internal = workload.spec.firewall_config.internal
    if internal.inbound_allow_type == LISTED and not internal.inbound_allow_workload:
        message = "inboundAllowWorkload lists no workload"
        hint = "add links such as //workload/web to inboundAllowWorkload, or write `none`"
        yield Flaw(INBOUND_TYPE, message, hint, (WORKLOADS,))


@register_warning("firewall-list-unused", "docs/platform/workload.md#firewall", Kind.WORKLOAD)
def list_without_effect(workload: Workload) -> Iterator[Flaw]:
    """Every list of the firewall has an effect.

    `inboundAllowWorkload` is read only with `workload-list`; host names have no effect if all addresses are open,
    nor has `outboundAllowPort` without host names. Readers of such a list would rely on a rule that is not in force.
    """
    internal = workload.spec.firewall_config.internal
    if internal.inbound_allow_workload and internal.inbound_allow_type != LISTED:
        message = f"inboundAllowWorkload has no effect with inboundAllowType {quote_text(internal.inbound_allow_type)}"
        yield Flaw(
            WORKLOADS, message, f"write `inboundAllowType: {LISTED}`, or remove the list", (INBOUND_TYPE,), on_key=True
        )
    external = workload.spec.firewall_config.external
    hosts, addresses = (*EXTERNAL, "outboundAllowHostname"), (*EXTERNAL, "outboundAllowCIDR")
    if external.outbound_allow_hostname and EVERYWHERE in external.outbound_allow_cidr:
        message = f"outboundAllowHostname has no effect: {EVERYWHERE} in outboundAllowCIDR opens everything"
        yield Flaw(
            hosts,
            message,
            f"remove one of the two; without {EVERYWHERE} only what is listed can be reached",
            (addresses,),
            on_key=True,
        )
    if external.outbound_allow_port and not external.outbound_allow_hostname:
        message = "outboundAllowPort has no effect: it narrows outboundAllowHostname, which is empty"
        yield Flaw((*EXTERNAL, "outboundAllowPort"), message, "list host names, or remove it", (hosts,), on_key=True)


@register_warning("tcp-foreign-gvc", "docs/platform/workload.md#tcp-ports", Kind.WORKLOAD)
def tcp_from_another_gvc(workload: Workload) -> Iterator[Flaw | Lookup]:
    """A tcp port is only for workloads of the same GVC.

    The firewall may allow others, but no tcp connection arrives from another GVC.
    """
    internal = workload.spec.firewall_config.internal
    allowed = internal.inbound_allow_type
    if allowed not in ("same-org", LISTED):
        return
    protocol = _tcp_port(workload)
    if protocol is None:
        return
    if allowed == "same-org":
        yield Flaw(INBOUND_TYPE, FOREIGN, "write `same-gvc`, or choose another protocol for the port", (protocol,))
        return
    for number, link in enumerate(internal.inbound_allow_workload):
        _, named, rest = link.partition("/gvc/")
        if named:
            # The directory may decide the GVC of this workload, so the comparison with it comes later.
            yield Lookup((*WORKLOADS, number), f"gvc/{workload.gvc or GVC_PLACEHOLDER}", rest.partition("/")[0])


@cross_rule("tcp-foreign-gvc")
def entry_of_another_gvc(question: LookupRequest, _: str, __: RuleContext) -> Iterator[tuple[str, str]]:
    """Whether the listed workload is in another GVC than the one that lists it."""
    if question.detail != question.target.removeprefix("gvc/"):
        yield (
            f"{FOREIGN}, and this workload is in {quote_text(question.detail)}",
            "remove it, or choose another protocol",
        )


def _tcp_port(workload: Workload) -> Pointer | None:
    for number, container in enumerate(workload.spec.containers):
        for index, port in enumerate(container.ports):
            if port.protocol == "tcp":
                return ("spec", "containers", number, "ports", index, "protocol")
    return None
