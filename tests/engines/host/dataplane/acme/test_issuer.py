"""An authority checks host names through HAProxy and issues certificates; whatever it does, the others go on."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.domain_proof import find_proof
from reconciler.engines.host.dataplane.acme import dns_hook
from reconciler.engines.host.dataplane.acme.dns_hook import read_presented, run_hook
from reconciler.engines.host.dataplane.acme.issuer import read_failures
from reconciler.engines.host.dataplane.acme.orders import Order, OrderAnswer, load_account_key, place_order
from reconciler.engines.host.dataplane.haproxy.program import find_program
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import AcmeSettings
from tests.engines.host.dataplane.acme.kit import ORG, Authority, IssuerHarness, broken_authority, run_authority
from tests.support.programs import skip_unless

pytestmark = skip_unless(
    find_program() is not None and shutil.which("pebble") is not None, "HAProxy or Pebble is not installed"
)


ACTIONS = ("present", "cleanup")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """An authority that all tests of this module share; each has a domain of its own."""
    with run_authority(tmp_path_factory.mktemp("pebble")) as running:
        yield running


def test_a_proven_host_gets_a_certificate_and_a_new_one_in_time(authority: Authority, tmp_path: Path) -> None:
    host = IssuerHarness(tmp_path, authority.settings)

    async def story() -> None:
        host.issuer.want({"www.one.example": "one.example"})
        await host.issuer.work()
        assert host.issuer.certificates == ()
        host.proven.add("one.example")
        await host.issuer.work()
        (first,) = host.issuer.certificates
        assert first.names == ("www.one.example",)
        assert host.issuer.problems == {}
        # Nothing is ordered until it is due, not by another daemon either.
        await host.issuer.work()
        host.restart().want({"www.one.example": "one.example"})
        await host.issuer.work()
        assert host.issuer.certificates == (first,)
        host.clock.jump((first.not_after - first.not_before) * 0.67)
        await host.issuer.work()
        (second,) = host.issuer.certificates
        assert second.digest != first.digest
        assert [each.reason for each in host.events] == [Reason.CERTIFICATE_ISSUED] * 2

    host.answer(authority.http_port, story)
    modes = {each.name: each.stat().st_mode & 0o777 for each in host.directory.rglob("*") if each.is_file()}
    assert modes == dict.fromkeys(("account.pem", "state.json", "www.one.example.pem"), 0o600)


def test_a_refused_challenge_is_not_repeated_at_once_and_harms_no_other_host(
    authority: Authority, tmp_path: Path
) -> None:
    host = IssuerHarness(tmp_path, authority.settings)
    host.proven.add("two.example")

    async def story() -> None:
        host.issuer.want({"www.two.example": "two.example", "bad_name.two.example": "two.example"})
        await host.issuer.work()
        assert [each.names for each in host.issuer.certificates] == [("www.two.example",)]
        assert list(host.issuer.problems) == ["bad_name.two.example"]

    host.answer(authority.http_port, story)
    host.issuer.want({"new.two.example": "two.example"})
    for _ in range(3):
        asyncio.run(host.issuer.work())
    failed = [event for event in host.events if event.host == "new.two.example"]
    assert [event.reason for event in failed] == [Reason.CERTIFICATE_FAILED]
    assert "refused the challenge" in failed[0].message
    assert "the next order is at 20" in failed[0].message
    host.clock.jump(1000)
    host.restart().want({"new.two.example": "two.example"})
    asyncio.run(host.issuer.work())
    assert len([event for event in host.events if event.host == "new.two.example"]) == 2
    host.clock.jump(1000)
    asyncio.run(host.issuer.work())
    assert len([event for event in host.events if event.host == "new.two.example"]) == 2


async def test_a_record_of_another_org_proves_nothing(authority: Authority) -> None:
    authority.prove("three.example", "another")
    resolver = authority.resolver
    assert (await find_proof("three.example", ORG, resolver)).problem.endswith("does not exist; another value is there")
    authority.prove("three.example")
    assert (await find_proof("three.example", ORG, resolver)).problem == ""


def test_an_authority_that_is_down_or_overloaded(tmp_path: Path) -> None:
    key = load_account_key(tmp_path / "account.pem")
    with broken_authority(tmp_path, 429, "Retry-After: 3600") as settings:
        order = Order("a.example", settings.directory, "", key, str(settings.ca_file))
        answer = place_order(order)
        assert (answer.pem, answer.retry_after) == ("", 3600.0)
        assert answer.problem
        assert "not trusted" in place_order(msgspec.structs.replace(order, ca_file="")).problem
    assert "cannot be reached" in place_order(order).problem


async def test_an_order_that_runs_has_not_failed_unless_its_daemon_has_ended(tmp_path: Path) -> None:
    connected = asyncio.Event()
    clients: list[asyncio.StreamWriter] = []

    def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(writer)
        connected.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    host = IssuerHarness(tmp_path, AcmeSettings(f"https://localhost:{port}/dir"))
    host.proven.add("seven.example")
    host.issuer.want({"www.seven.example": "seven.example"})
    running = asyncio.create_task(host.issuer.work())
    await asyncio.wait_for(connected.wait(), 60)
    assert read_failures(host.directory) == {}
    assert host.issuer.problems == {}
    # A daemon after a crash finds the order that was interrupted, and does not repeat it at once.
    former, after = host.issuer, host.restart()
    after.want({"www.seven.example": "seven.example"})
    await after.work()
    assert after.problems == {"www.seven.example": "the order was interrupted"}
    server.close()
    for each in clients:
        each.close()
    await running
    assert "of the authority" in former.problems["www.seven.example"]


def test_an_order_is_ended_after_its_time(tmp_path: Path) -> None:
    key = load_account_key(tmp_path / "account.pem")
    order = Order("a.example", "https://localhost:1/dir", "", key)
    assert place_order(order, 0.001) == OrderAnswer(problem="the authority did not finish within 0.001 s")


def test_without_room_for_its_state_no_order_is_placed(authority: Authority, tmp_path: Path) -> None:
    host = IssuerHarness(tmp_path, authority.settings)
    host.proven.add("four.example")
    host.work(www_four_example="four.example")
    before = list(host.events)
    (host.directory / "state.json").unlink()
    (host.directory / "state.json").mkdir()
    host.clock.jump(10_000)
    with pytest.raises(EngineError, match=r"state\.json cannot be written"):
        host.work(www_four_example="four.example")
    assert host.events == before


def test_a_damaged_account_key_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "account.pem"
    for content in (b"", b"\xff\x00", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        path.write_bytes(content)
        with pytest.raises(EngineError, match=r"account\.pem is not the key of an ACME account"):
            load_account_key(path)


def test_a_damaged_state_costs_one_order_at_most(tmp_path: Path) -> None:
    host = IssuerHarness(tmp_path, AcmeSettings("https://localhost:1/dir"))
    host.proven.add("five.example")
    (host.directory / "state.json").write_bytes(b'{"issued": 1')
    host.restart()
    for _ in range(3):
        host.work(www_five_example="five.example")
    assert [each.reason for each in host.events] == [Reason.CERTIFICATE_FAILED]


def test_nothing_is_ordered_for_a_domain_that_is_not_proven(tmp_path: Path) -> None:
    host = IssuerHarness(tmp_path, AcmeSettings("https://localhost:1/dir"))
    host.work(www_six_example="six.example")
    assert (host.events, host.issuer.problems) == ([], {})


def test_a_clock_that_was_ahead_delays_no_order_until_that_time_comes(tmp_path: Path) -> None:
    host = IssuerHarness(tmp_path, AcmeSettings("https://localhost:1/dir"))
    host.proven.add("five.example")
    host.clock.jump(400 * 86_400.0)
    host.work(www_five_example="five.example")
    host.clock.jump(-400 * 86_400.0)
    for _ in range(2):
        host.restart()
        host.work(www_five_example="five.example")
    assert len(host.events) == 1
    host.clock.block(1000.0)
    host.work(www_five_example="five.example")
    assert [each.reason for each in host.events] == [Reason.CERTIFICATE_FAILED] * 2


def dns_program(path: Path, authority: Authority, broken: str = "") -> tuple[str, ...]:
    """A program that sets and removes records in the DNS of ``authority``, and notes its calls; ``broken`` fails."""
    program = path / "dns-record"
    program.write_text(
        f"""#!{sys.executable}
import json, sys, urllib.request
action, name, value = sys.argv[2:]
open({str(path / "calls")!r}, "a").write(f"{{action}} {{name}} {{sys.argv[1]}}\\n")
if action == {broken!r}:
    sys.exit("no rights")
what, body = "clear", {{"host": name + "."}}
if action == "present":
    what, body = "set", body | {{"value": value}}
urllib.request.urlopen("http://127.0.0.1:{authority.dns_port}/" + what + "-txt", json.dumps(body).encode())
"""
    )
    program.chmod(0o755)
    return str(program), "$zone; a'b"


def calls(path: Path) -> list[str]:
    """The calls of the program so far."""
    file = path / "calls"
    return file.read_text().splitlines() if file.exists() else []


async def test_a_wildcard_and_a_name_get_certificates_by_records_of_dns(authority: Authority, tmp_path: Path) -> None:
    hook = dns_program(tmp_path, authority)
    host = IssuerHarness(tmp_path, msgspec.structs.replace(authority.settings, dns_hook=hook))
    host.proven.add("eight.example")
    wanted = dict.fromkeys(("*.eight.example", "www.eight.example"), "eight.example")
    host.issuer.want(wanted, ["www.eight.example"])
    await host.issuer.work()
    assert host.issuer.problems == {}
    assert sorted(each.names for each in host.issuer.certificates) == [("*.eight.example",), ("www.eight.example",)]
    # The words of the settings are no text of a shell.
    names = ("_acme-challenge.eight.example", "_acme-challenge.www.eight.example")
    assert sorted(calls(tmp_path)) == sorted(f"{action} {name} {hook[1]}" for name in names for action in ACTIONS)
    assert read_presented(host.directory / "presented.json") == []
    # Nothing is ordered before it is due.
    await host.issuer.work()
    assert len(calls(tmp_path)) == 4


@pytest.mark.parametrize("broken", ["present", pytest.param("cleanup", marks=pytest.mark.slow)])
async def test_a_program_that_fails_is_reported_and_its_record_is_removed_later(
    authority: Authority, tmp_path: Path, broken: str
) -> None:
    settings = msgspec.structs.replace(authority.settings, dns_hook=dns_program(tmp_path, authority, broken))
    host = IssuerHarness(tmp_path, settings)
    host.proven.add("nine.example")
    host.issuer.want({"*.nine.example": "nine.example"})
    await host.issuer.work()
    if broken == "present":
        assert "ended with code 1: no rights" in host.issuer.problems["*.nine.example"]
        assert read_presented(host.directory / "presented.json") == []
    else:
        assert host.issuer.problems == {}
        [(name, _)] = read_presented(host.directory / "presented.json")
        assert name == "_acme-challenge.nine.example"
        dns_program(tmp_path, authority)
        await host.issuer.work()
        assert read_presented(host.directory / "presented.json") == []


async def test_an_order_that_is_killed_leaves_no_record(authority: Authority, tmp_path: Path) -> None:
    hook = dns_program(tmp_path, authority)
    host = IssuerHarness(tmp_path, msgspec.structs.replace(authority.settings, dns_hook=hook))
    # As the killed process of an order leaves it.
    (host.directory / "presented.json").write_bytes(b'[["_acme-challenge.ten.example","value"]]')
    await host.issuer.work()
    assert calls(tmp_path) == [f"cleanup _acme-challenge.ten.example {hook[1]}"]
    assert read_presented(host.directory / "presented.json") == []


def test_a_program_that_cannot_be_run_or_does_not_end_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot be run: No such file" in run_hook([str(tmp_path / "none")], "present", "a", "b")
    monkeypatch.setattr(dns_hook, "SECONDS", 0.2)
    assert "did not end within 0.2 s" in run_hook(["/bin/sh", "-c", "sleep 600 & sleep 600"])
