"""Rules for ports whose container does not exist are found, and no others."""

from __future__ import annotations

from reconciler.engines.host.runtimes.podman.network.port_rules import lost_rules
from tests.support.podman import left_rules

NETWORK, CHAIN = "reconciler-fa0ba7c5e1a9", "NETAVARK-DN-F64BA23C39906"
LIVING, DEAD, OTHER = (each * 64 for each in "abc")


def named(port: int, container: str, network: str = NETWORK, chain: str = CHAIN) -> str:
    owner = f'--comment "dnat name: {network} id: {container}"'
    return f"-A NETAVARK-HOSTPORT-DNAT -p tcp -m tcp --dport {port} -m comment {owner} -j {chain}"


def mark(port: int) -> str:
    return f"-A {CHAIN} -s 127.0.0.1/32 -d 127.0.0.1/32 -p tcp -m tcp --dport {port} -j NETAVARK-HOSTPORT-SETMARK"


def address(port: int, last: int, chain: str = CHAIN) -> str:
    return f"-A {chain} -d 127.0.0.1/32 -p tcp -m tcp --dport {port} -j DNAT --to-destination 10.213.0.{last}:8080"


def test_all_rules_of_a_port_go_with_its_only_container() -> None:
    theirs = [named(2787, DEAD, "podman", "NETAVARK-DN-1"), address(2787, 5, "NETAVARK-DN-1")]
    ours = [named(27875, DEAD), mark(27875), address(27875, 30)]
    living = [named(2787, LIVING), mark(2787), address(2787, 2)]
    assert sorted(lost_rules([*theirs, *ours, *living], NETWORK, {LIVING})) == sorted(ours)


def test_the_newest_address_of_a_port_stays_with_the_container_that_has_it_now() -> None:
    listing = [mark(9), address(9, 30), address(9, 31), named(9, DEAD), named(9, LIVING)]
    assert sorted(lost_rules(listing, NETWORK, {LIVING, OTHER})) == sorted([named(9, DEAD), address(9, 30)])
    assert lost_rules(listing, NETWORK, {LIVING, DEAD}) == []
    assert lost_rules([], NETWORK, {LIVING}) == []


def test_the_kit_removes_what_a_killed_run_left_and_nothing_else() -> None:
    theirs = [named(2787, DEAD, "podman", "NETAVARK-DN-1D8721804F16F"), "-A POSTROUTING -s 10.88.0.0/16 -j ACCEPT"]
    leaving = "NETAVARK-64BA23C39906F"
    ours = [named(2788, LIVING), f"-A POSTROUTING -s 10.213.0.0/24 -j {leaving}"]
    inner = [mark(2788), address(2788, 2), f"-A {leaving} -d 10.213.0.0/24 -j ACCEPT"]
    forward = "-A NETAVARK_FORWARD -d 10.213.0.0/24 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    lines = ["# saved", "*filter", ":FORWARD ACCEPT [0:0]", "-A FORWARD -j NETAVARK_FORWARD", forward, "COMMIT"]
    saved = "\n".join([*lines, "*nat", *theirs, *ours, *inner, "COMMIT", ""])
    assert left_rules(saved).splitlines() == [
        "*filter",
        forward.replace("-A", "-D", 1),
        "COMMIT",
        "*nat",
        *(each.replace("-A", "-D", 1) for each in ours),
        f"-F {leaving}",
        f"-F {CHAIN}",
        f"-X {leaving}",
        f"-X {CHAIN}",
        "COMMIT",
    ]
    assert left_rules("\n".join([*lines[:4], "COMMIT", "*nat", *theirs, "COMMIT"])) == ""
