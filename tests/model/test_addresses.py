"""Ranges of addresses without those that are blocked."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.addresses import without_blocked


@pytest.mark.parametrize(
    ("allowed", "blocked", "left"),
    [
        ((), ("10.0.0.0/8",), ()),
        (("10.1.2.3",), (), ("10.1.2.3",)),
        (("10.0.0.0/30",), ("10.0.0.1",), ("10.0.0.0/32", "10.0.0.2/31")),
        (("10.1.0.0/16",), ("10.0.0.0/8",), ()),
        (("10.1.0.0/16", "192.0.2.7"), ("10.0.0.0/8",), ("192.0.2.7/32",)),
        (("10.0.0.0/8",), ("2001:db8::/32",), ("10.0.0.0/8",)),
        (("::/0",), ("8000::/1",), ("::/1",)),
        (("10.0.0.1/8",), ("10.128.0.0/9",), ("10.0.0.0/9",)),
    ],
)
def test_blocked_addresses_are_taken_out(
    allowed: tuple[str, ...], blocked: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert without_blocked(allowed, blocked) == left


networks = st.builds(
    lambda number, length: str(IPv4Network((number, length), strict=False)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)


@given(st.lists(networks, max_size=4), st.lists(networks, max_size=4), st.integers(0, 2**32 - 1))
def test_an_address_enters_if_it_is_allowed_and_not_blocked(
    allowed: list[str], blocked: list[str], number: int
) -> None:
    address = ip_address(number)
    left = without_blocked(tuple(allowed), tuple(blocked))
    covered = [any(address in ip_network(each, strict=False) for each in found) for found in (allowed, blocked, left)]
    assert covered[2] is (covered[0] and not covered[1])
