"""Limits of requests: of an address, of a caller, and of the memory that they take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.api.problems import Problem
from reconciler.api.rate_limits import BURST_SECONDS, FREE_FAILURES, MOST_ADDRESSES, FailedLogins, RateLimit, network_of
from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSandbox, api_sandbox
from tests.support.clock import FakeClock

BURST = 2 * int(BURST_SECONDS)
"""The requests of the caller below that may come at once."""
WEB = f"{ORG}/gvc/shop/workload/web"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox that answers two requests a second of a caller, and four of an address."""
    limits = {"rateLimits": {"caller": 2, "address": 4}}
    with api_sandbox(tmp_path_factory.mktemp("limits"), FILES, api=limits) as made:
        yield made


@pytest.fixture
def sandbox(narrow: ApiSandbox) -> ApiSandbox:
    """The sandbox, at a time when all earlier requests are forgotten."""
    narrow.clock.suspend(3600.0)
    return narrow


def key_of(sandbox: ApiSandbox) -> dict[str, str]:
    """The header with a new key of the service account."""
    return {"Authorization": sandbox.api.store.add_key("ci", "", "test", None)[1]}


def test_a_caller_over_its_limit_gets_429_until_time_has_passed(sandbox: ApiSandbox) -> None:
    client, header = sandbox.client(None), key_of(sandbox)
    assert {client.request("GET", WEB, headers=header).status_code for _ in range(BURST)} == {200}
    # The limit is of the account: another key of it does not help.
    answer = client.request("GET", WEB, headers=key_of(sandbox))
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["code"]) == (429, "1", "TooManyRequests")
    assert answer.json()["message"] == "too many requests of this caller: more than 2 a second"
    sandbox.clock.suspend(1.0)
    assert [client.request("GET", WEB, headers=header).status_code for _ in range(3)] == [200, 200, 429]


def test_an_address_over_its_limit_gets_429_without_a_credential_too(sandbox: ApiSandbox) -> None:
    client = sandbox.client(None)
    paths = ("/healthz", "/nothing", WEB, "/openapi.json")
    found = [client.request("GET", paths[number % 4]).status_code for number in range(FREE_FAILURES * 4)]
    assert 429 not in found
    assert [client.request("GET", "/healthz").status_code for _ in range(4 * int(BURST_SECONDS) + 1)][-1] == 429
    assert sandbox.client().request("GET", WEB).status_code == 200, "others are answered"


def test_a_flood_without_a_credential_keeps_no_valid_one_out(sandbox: ApiSandbox) -> None:
    client, header = sandbox.client(None), key_of(sandbox)
    flood = [client.request("GET", path).status_code for path in ("/healthz", "/nothing") * 4 * int(BURST_SECONDS)]
    assert flood[-2:] == [429, 429]
    assert client.request("GET", WEB, headers={"Authorization": "rk_000000000000.guess"}).status_code == 429
    assert client.request("GET", WEB, headers=header).status_code == 200


def test_readers_at_the_socket_have_a_limit_and_the_operator_has_none(sandbox: ApiSandbox) -> None:
    assert {sandbox.client().request("GET", WEB).status_code for _ in range(3 * BURST)} == {200}
    found = [sandbox.client(READER_PEER).request("GET", WEB).status_code for _ in range(BURST + 1)]
    assert found == [200] * BURST + [429]


def test_refused_floods_add_nothing_to_the_audit_log(sandbox: ApiSandbox) -> None:
    client, header = sandbox.client(None), key_of(sandbox)
    for _ in range(BURST):
        client.request("GET", WEB, headers=header)
    before = sandbox.client().get(f"{ORG}/-audit?last=1000")["items"]
    assert client.request("DELETE", WEB, headers=header).status_code == 429
    assert sandbox.client().get(f"{ORG}/-audit?last=1000")["items"] == before


def test_a_zero_is_no_limit() -> None:
    limit = RateLimit("this caller", 0, FakeClock().monotonic)
    for _ in range(1000):
        limit.count("ann")


def test_memory_is_bounded_however_many_addresses_come() -> None:
    clock = FakeClock()
    limit, failed = RateLimit("this address", 1, clock.monotonic), FailedLogins("this address", clock.monotonic)
    for number in range(MOST_ADDRESSES + 100):
        limit.count(str(number))
        failed.add(str(number))
    assert len(limit._paid) == len(failed._failures) == MOST_ADDRESSES


def test_an_address_that_keeps_coming_is_not_forgotten_for_others() -> None:
    limit = RateLimit("this address", 1, FakeClock().monotonic)
    for number in range(int(BURST_SECONDS)):
        limit.count("busy")
        for other in range(MOST_ADDRESSES - 1):
            limit.count(f"{number}/{other}")
    with pytest.raises(Problem, match="more than 1 a second"):
        limit.count("busy")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
    ],
)
def test_addresses_of_one_machine_count_as_one(address: str, network: str) -> None:
    assert network_of(address) == network
