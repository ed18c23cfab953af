"""The firewall of a location as a table of nftables; pure.

All sandboxes are on one bridge. A packet from or to it is dropped unless a rule accepts it: what the source may do is
decided for packets that leave the bridge or are for this host, and what the destination allows for those between
sandboxes. Only the first packet of a connection is decided. Sandboxes cannot forge addresses: they lack CAP_NET_RAW.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from ipaddress import IPv4Network

import msgspec

from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.model.addresses import networks_of_version_4
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Firewall, Internal

_HOST_NAME_PORTS = (80, 443, 445)
"""The ports that a host name opens (docs/platform/workload.md#outbound-traffic)."""
_EVERYWHERE = IPv4Network("0.0.0.0/0")


class FirewallPolicy(msgspec.Struct, frozen=True):
    """The firewall of a workload, with its declared ports; those of ``tcp`` are for its own GVC only."""

    firewall: Firewall = Firewall()
    ports: tuple[int, ...] = ()
    tcp: tuple[int, ...] = ()

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names that can be looked up."""
        return tuple(text for text in self.firewall.external.outbound_allow_hostname if "*" not in text)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names that begin with ``*.``, whose addresses are learned as they are asked for."""
        return tuple(text for text in self.firewall.external.outbound_allow_hostname if text.startswith("*."))


class Known(msgspec.Struct, frozen=True):
    """What the rules are made from: the address of each sandbox with its workload, and what is allowed.

    ``hosts`` are the addresses of host names, ``resolvers`` those of the servers that know names.
    """

    sandboxes: Mapping[str, Key]
    policies: Mapping[Key, FirewallPolicy]
    hosts: Mapping[str, Collection[str]] = {}
    resolvers: Collection[str] = ()


def policy_of(spec: WorkloadSpec) -> FirewallPolicy:
    """The policy of a workload."""
    ports = tuple(sorted({port for container in spec.containers for port in container.ports}))
    return FirewallPolicy(spec.firewall, ports, spec.tcp_ports)


def table_rules(table: str, bridge: str, state: Known) -> list[str]:
    """The lines for nft that replace ``table`` by the one for sandboxes on ``bridge``, in one transaction."""
    keys = {key: number for number, key in enumerate(sorted(set(state.sandboxes.values())))}
    gvcs = {gvc: f"gvc{number}" for number, gvc in enumerate(sorted({key.gvc for key in keys}))}
    lines = [f"add table inet {table}", f"delete table inet {table}", f"table inet {table} {{"]
    for gvc, name in gvcs.items():
        members = [address for address, key in state.sandboxes.items() if key.gvc == gvc]
        lines += [f"set {name} {{", "type ipv4_addr", f"elements = {{ {_format_list(members)} }}", "}"]
    for key, number in keys.items():
        policy = state.policies.get(key, FirewallPolicy())
        lines += _render_chain(f"in{number}", _render_inbound(key, gvcs[key.gvc], policy, state))
        lines += _render_chain(f"out{number}", _render_outbound(policy, state))
    for direction in ("in", "out"):
        lines += _render_chain(f"{direction}_all", _render_dispatch(direction, state.sandboxes, keys))
    return [*lines, *_render_hooks(bridge), "}"]


def _render_hooks(bridge: str) -> Iterator[str]:
    """The chains that the kernel enters; they decide about the bridge only."""
    ours, answers = f'"{bridge}"', "ct state established,related accept"
    yield from _render_chain(
        "forward",
        [
            "type filter hook forward priority -10; policy accept;",
            f"iifname != {ours} oifname != {ours} accept",
            answers,
            f"iifname {ours} oifname {ours} meta nfproto ipv4 jump in_all",
            f"iifname {ours} oifname != {ours} meta nfproto ipv4 jump out_all",
            "drop",
        ],
    )
    yield from _render_chain(
        "input",
        [
            "type filter hook input priority -10; policy accept;",
            f"iifname != {ours} accept",
            answers,
            "meta nfproto ipv4 jump out_all",
            "drop",
        ],
    )


def _render_dispatch(direction: str, sandboxes: Mapping[str, Key], keys: Mapping[Key, int]) -> Iterator[str]:
    """Go to the chain of the workload by the address of the one that the packet is for, or from."""
    side = "daddr" if direction == "in" else "saddr"
    if sandboxes:
        targets = ", ".join(f"{address} : goto {direction}{keys[key]}" for address, key in sorted(sandboxes.items()))
        yield f"ip {side} vmap {{ {targets} }}"


def _render_inbound(key: Key, own_gvc: str, policy: FirewallPolicy, state: Known) -> Iterator[str]:
    """Which sandboxes reach the declared ports of ``key`` (docs/platform/workload.md#traffic-between-workloads).

    ``own_gvc`` is the set with the addresses of its GVC.
    """
    internal = policy.firewall.internal
    if internal.inbound_allow_type in ("same-gvc", "same-org") and policy.ports:
        yield f"ip saddr @{own_gvc} tcp dport {{ {_format_list(policy.ports)} }} accept"
    yield from _render_accept("saddr", _list_sources(key, internal, state, own=True), policy.ports)
    http = [port for port in policy.ports if port not in policy.tcp]
    if internal.inbound_allow_type == "same-org":
        yield from (f"tcp dport {{ {_format_list(http)} }} accept" for _ in http[:1])
    else:
        yield from _render_accept("saddr", _list_sources(key, internal, state, own=False), http)
    yield "drop"


def _list_sources(key: Key, internal: Internal, state: Known, *, own: bool) -> list[str]:
    """The addresses of the workloads that the list of ``key`` names, in its ``own`` GVC or in others."""
    if internal.inbound_allow_type != "workload-list":
        return []
    listed = {_parse_link(key, link) for link in internal.inbound_allow_workload}
    items_view = state.sandboxes.items()
    return [address for address, source in items_view if source in listed and (source.gvc == key.gvc) == own]


def _parse_link(key: Key, link: str) -> Key:
    """The workload that a ``link`` in normal form names: ``/org/ORG/gvc/GVC/workload/NAME``."""
    gvc, _, name = link.rpartition("/gvc/")[2].rpartition("/workload/")
    return Key(Kind.WORKLOAD, gvc or key.gvc, name)


def _render_outbound(policy: FirewallPolicy, state: Known) -> Iterator[str]:
    """Where a workload connects to outside (docs/platform/workload.md#outbound-traffic). The network has no IPv6."""
    external = policy.firewall.external
    allowed, blocked = map(networks_of_version_4, (external.outbound_allow_cidr, external.outbound_blocked_cidr))
    if external.outbound_allow_hostname:
        # Without its name servers a workload finds none of its hosts, whatever it may not reach.
        yield from _render_accept("daddr", state.resolvers, (53,))
        yield from (
            f"ip daddr {{ {_format_list(state.resolvers)} }} udp dport 53 accept" for _ in list(state.resolvers)[:1]
        )
    yield from (f"ip daddr {{ {_format_list(blocked)} }} drop" for _ in blocked[:1])
    if _EVERYWHERE in allowed:
        yield "accept"
        return
    yield from (f"ip daddr {{ {_format_list(allowed)} }} accept" for _ in allowed[:1])
    if external.outbound_allow_hostname:
        narrowed = {port.number for port in external.outbound_allow_port} & set(_HOST_NAME_PORTS)
        ports = sorted(narrowed) if external.outbound_allow_port else _HOST_NAME_PORTS
        addresses = {address for name in external.outbound_allow_hostname for address in state.hosts.get(name, ())}
        yield from _render_accept("daddr", addresses, ports)
    yield "drop"


def _render_accept(side: str, addresses: Collection[str], ports: Collection[int]) -> Iterator[str]:
    if addresses and ports:
        yield f"ip {side} {{ {_format_list(addresses)} }} tcp dport {{ {_format_list(ports)} }} accept"


def _format_list(values: Collection[object]) -> str:
    return ", ".join(sorted(map(str, values)))


def _render_chain(name: str, rules: Collection[str] | Iterator[str]) -> list[str]:
    return [f"chain {name} {{", *rules, "}"]
