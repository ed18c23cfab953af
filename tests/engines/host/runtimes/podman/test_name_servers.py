"""Which addresses the answers of name servers open: those of names that a pattern matches, and no others."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from dns.message import make_query, make_response
from dns.rrset import from_text

from reconciler.engines.host.runtimes.podman.network import name_servers
from reconciler.engines.host.runtimes.podman.network.firewall import LocationFirewall
from reconciler.engines.host.runtimes.podman.network.firewall_rules import FirewallPolicy
from reconciler.engines.host.runtimes.podman.network.name_servers import NameAnswer, may_read_answers, read_answer
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import External
from reconciler.model.kinds.workload import Firewall as Rules
from tests.support.clock import FakeClock
from tests.support.programs import only_root, tool

SERVER, PATTERNS = "10.8.0.2", ("*.example.com", "*.example.org", "*..bad", "*.eu.example.com")
RECORDS = {
    "plain": ("api.example.com", ["api.example.com. 60 IN A 192.0.2.1"]),
    "deep": ("A.EU.Example.COM", ["a.eu.example.com. 900 IN A 192.0.2.1", "a.eu.example.com. 900 IN A 192.0.2.2"]),
    "alias": ("api.example.com", ["api.example.com. 60 IN CNAME cdn.net.", "cdn.net. 30 IN A 192.0.2.3"]),
    "alias-of-another": ("cdn.net", ["cdn.net. 60 IN CNAME api.example.com.", "api.example.com. 60 IN A 192.0.2.1"]),
    "unrelated-record": ("api.example.com", ["www.example.com. 60 IN A 192.0.2.1"]),
    "domain-itself": ("example.com", ["example.com. 60 IN A 192.0.2.1"]),
    "similar": ("badexample.com", ["badexample.com. 60 IN A 192.0.2.1"]),
    "dot-in-a-label": (r"a\.example.com", [r"a\.example.com. 60 IN A 192.0.2.1"]),
    "sixth": ("api.example.com", ["api.example.com. 60 IN AAAA 2001:db8::1"]),
    "nothing": ("api.example.com", []),
}
EXPECTED = {
    "plain": NameAnswer(("*.example.com",), ("192.0.2.1",), 60.0),
    "deep": NameAnswer(("*.example.com", "*.eu.example.com"), ("192.0.2.1", "192.0.2.2"), 900.0),
    "alias": NameAnswer(("*.example.com",), ("192.0.2.3",), 30.0),
}


def packet(content: bytes, source: str = SERVER) -> bytes:
    """A packet of IPv4 from a name server, as far as it is read."""
    return b"\x45" + bytes(11) + socket.inet_aton(source) + bytes(4) + bytes(8) + content


def response(name: str, records: list[str]) -> bytes:
    kind = "AAAA" if any(" AAAA " in record for record in records) else "A"
    message = make_response(make_query(name, kind))
    for text in records:
        owner, seconds, group, rdtype, value = text.split(" ")
        message.answer.append(from_text(owner, int(seconds), group, rdtype, value))
    return message.to_wire()


@pytest.mark.parametrize("case", RECORDS)
def test_an_answer_opens_the_addresses_of_the_name_that_was_asked_for(case: str) -> None:
    content = response(*RECORDS[case])
    assert read_answer(packet(content), (SERVER,), PATTERNS) == EXPECTED.get(case)
    assert read_answer(packet(content), ("10.8.0.9",), PATTERNS) is None


def test_half_an_answer_and_other_messages_open_nothing() -> None:
    whole = packet(response(*RECORDS["plain"]))
    assert read_answer(whole, (SERVER,), PATTERNS)
    assert [end for end in range(len(whole)) if read_answer(whole[:end], (SERVER,), PATTERNS)] == []
    assert read_answer(packet(make_query("api.example.com", "A").to_wire()), (SERVER,), PATTERNS) is None
    update = bytearray(response(*RECORDS["plain"]))
    update[2] |= 5 << 3
    assert read_answer(packet(bytes(update)), (SERVER,), PATTERNS) is None


@only_root("only root reads packets")
def test_reading_answers_needs_a_capability() -> None:
    assert may_read_answers()
    script = f"from {read_answer.__module__} import may_read_answers as may; print(may())"
    without = [tool("setpriv", "util-linux"), "--inh-caps=-net_raw", "--bounding-set=-net_raw", sys.executable]
    assert subprocess.run([*without, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"


async def test_what_is_learned_is_bounded_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "resolv.conf").write_text(f"nameserver {SERVER}\n")
    monkeypatch.setattr(name_servers, "_CONFIGURATIONS", (tmp_path / "resolv.conf",))
    clock, key = FakeClock(), Key(Kind.WORKLOAD, "shop", "api")
    firewall = LocationFirewall("test-of-bounds", tmp_path / "policies.json", clock)
    firewall.load()
    firewall.set_policy(key, FirewallPolicy(Rules(External(outbound_allow_hostname=("*.example.com",)))))
    for first in range(0, 1200, 200):
        records = [f"a.example.com. 60 IN A 10.1.{at // 256}.{at % 256}" for at in range(first, first + 200)]
        assert firewall.learn("", packet(response("a.example.com", records)))
        await clock.advance(1.0)
    assert not firewall.learn("", packet(response("a.example.com", records)))
    metadata = response("a.example.com", ["a.example.com. 60 IN A 169.254.169.254"])
    assert not firewall.learn("", packet(metadata)), "an address of this link stays closed"
    learned = firewall._read_known().hosts["*.example.com"]
    assert len(learned) == 1000
    assert "10.1.0.0" not in learned
    await clock.advance(700.0)
    await firewall.refresh_hosts()
    assert not firewall._read_known().hosts["*.example.com"]
