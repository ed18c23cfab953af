"""From the live state of HAProxy to the commands that bring it to what is wanted."""

from __future__ import annotations

import pytest

from reconciler.engines.host.dataplane.haproxy.config import SELF, WAIT, Backend, Server
from reconciler.engines.host.dataplane.haproxy.live import (
    Counted,
    LiveBackend,
    LiveServer,
    StatReader,
    desired_entries,
    list_commands,
    map_commands,
    read_facts,
)
from reconciler.engines.host.dataplane.haproxy.proxy import Floods
from reconciler.engines.host.dataplane.protocol import Service, Traffic
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind

WEB = Key(Kind.WORKLOAD, "shop", "web")
READY = LiveServer("127.0.0.1:1", 10, open=0, ready=True, ends=False, proven=False)

COMES = "del map ./empty.map shop:web"
"""What precedes the first replica."""
ARRIVE = [*["set maxconn server shop:web/_wait 65536"] * 8, "set maxconn server shop:web/_wait 1"]
"""What follows it."""
WAITS = "add map ./empty.map shop:web none"
"""What precedes the end of the last one."""

STAT = """\
# pxname,svname,qcur,scur,slim,stot,bout,dreq,econ,status,weight,addr,
shop:web:in,FRONTEND,,3,100,12,1,0,,OPEN,,,
shop:web,_self,0,0,,0,0,,0,no check,1,127.0.0.1:18000,
shop:web,_wait,2,1,1,3,0,,0,no check,1,127.0.0.1:18000,
shop:web,a,0,2,10,5,0,,0,no check,1,127.0.0.1:20001,
shop:web,b,0,0,,5,700,,0,DRAIN,0,127.0.0.1:20002,
shop:web,BACKEND,2,6,10,12,1,3,1,UP,1,,
shop:db:in,FRONTEND,,1,100,7,1,0,,OPEN,,,
shop:db,BACKEND,0,1,10,7,1,0,0,DOWN (UNPUB),1,,
"""


PROCESSES = """\
#<PID>          <type>          <reloads>       <uptime>        <version>
1067            master          3 [failed: 0]   0d00h00m09s     2.6.12
# workers
1096            worker          0               0d00h00m01s     2.6.12
# old workers
1091            worker          1               0d00h00m05s     2.6.12
1080            worker          2               0d00h00m07s     2.6.12
# programs
1070            worker          0               0d00h00m01s     -
"""


def wanted(*servers: Server) -> list[Backend]:
    """The workload with these servers."""
    return [Backend(Service(WEB, 8080), 18_000, servers)]


def test_the_state_is_read() -> None:
    found = StatReader().read(STAT)
    web, database = found["shop:web"], found["shop:db"]
    assert web.servers["a"] == LiveServer("127.0.0.1:20001", 10, open=2, ready=True, ends=False, proven=False)
    assert web.servers["b"] == LiveServer("127.0.0.1:20002", 0, open=0, ready=False, ends=True, proven=True, weight=0)
    assert (web.published, database.published) == (True, False)
    assert (web.refused, [each.address for each in web.replicas]) == (4, ["127.0.0.1:20001", "127.0.0.1:20002"])
    assert web.traffic() == Traffic(arrived=9, active=2, waiting=3)
    assert StatReader().read(STAT.replace("a,0,2,10,", "a,0,2,65536,"))["shop:web"].servers["a"].limit == 0
    assert database.traffic() == Traffic(arrived=7, active=0, waiting=1)
    with pytest.raises(EngineError, match="unknown form"):
        StatReader().read("# something,else\n")
    assert StatReader().read("No such proxy.\n\n") == {}


def test_workers_that_take_no_new_connections_are_counted() -> None:
    found = read_facts(f"Name: HAProxy\n\n{PROCESSES}\n")
    assert (found.former_workers, found.former) == (2, ("1091", "1080"))
    assert read_facts(PROCESSES.replace("# old workers\n", "")).former_workers == 0
    assert read_facts("").former_workers == 0


@pytest.mark.parametrize(
    ("former", "now", "same"),
    [
        pytest.param("127.0.0.1:20001", "127.0.0.1:20001", {"shop:web", "shop:db"}, id="nothing"),
        pytest.param("shop:web,a,0,2,", "shop:web,a,0,3,", {"shop:db"}, id="requests"),
        pytest.param("127.0.0.1:20001", "127.0.0.1:2000", {"shop:db"}, id="an address"),
        pytest.param("DOWN", "UP", {"shop:web", "shop:db"}, id="what does not count"),
        pytest.param(",7,1,0,0,DOWN", ",8,1,0,0,DOWN", {"shop:web"}, id="arrived"),
    ],
)
def test_backends_without_a_change_are_the_same_objects(former: str, now: str, same: set[str]) -> None:
    reader, text = StatReader(), STAT.replace(",\n", ",-,\n")
    before, after = reader.read(text), reader.read(text.replace(former, now))
    assert {name for name in before if after[name] is before[name]} == same
    assert after == StatReader().read(text.replace(former, now))


@pytest.mark.parametrize(
    ("server", "live", "expected"),
    [
        pytest.param(
            Server("a", "127.0.0.1:1", 10),
            None,
            [
                COMES,
                "add server shop:web/a 127.0.0.1:1 maxconn 10",
                "set server shop:web/a state ready",
                *ARRIVE,
            ],
            id="new",
        ),
        pytest.param(Server("a", "127.0.0.1:1", 10), READY, [], id="as wanted"),
        pytest.param(
            Server("a", "127.0.0.1:1", 10),
            READY._replace(ready=False, ends=True),
            [COMES, "set server shop:web/a state ready", *ARRIVE],
            id="back again",
        ),
        pytest.param(
            Server("a", "127.0.0.1:2", 0),
            READY,
            ["set server shop:web/a addr 127.0.0.1 port 2", "set maxconn server shop:web/a 65536"],
            id="changed",
        ),
        pytest.param(
            Server("a", "127.0.0.1:1", 10, weight=9),
            READY,
            ["set server shop:web/a weight 9"],
            id="another weight",
        ),
        pytest.param(
            None, READY._replace(open=1), [WAITS, "set server shop:web/a state drain"], id="leaves with requests"
        ),
        pytest.param(None, READY._replace(open=1, ready=False, ends=True), [], id="still has requests"),
        pytest.param(
            None,
            READY,
            [WAITS, "set server shop:web/a state maint", "del server shop:web/a"],
            id="leaves without requests",
        ),
    ],
)
def test_a_server_is_brought_to_what_is_wanted(
    server: Server | None, live: LiveServer | None, expected: list[str]
) -> None:
    servers = {SELF: READY, WAIT: READY} | ({"a": live} if live is not None else {})
    state = {"shop:web": LiveBackend(0, 0, 0, servers)}
    assert list(list_commands(wanted(*([server] if server else [])), state)) == expected


def test_requests_that_came_to_wait_beside_a_replica_arrive_again() -> None:
    state = {"shop:web": LiveBackend(0, 0, 0, {SELF: READY, WAIT: READY._replace(queued=1), "a": READY})}
    found = list(list_commands(wanted(Server("a", "127.0.0.1:1", 10)), state))
    assert found == [COMES, *ARRIVE]


def test_servers_come_before_others_leave_and_unknown_backends_are_left_out() -> None:
    state = {"shop:web": LiveBackend(0, 0, 0, {SELF: READY, WAIT: READY, "a": READY})}
    first = next(iter(list_commands(wanted(Server("b", "127.0.0.1:2")), state)))
    assert first == "add server shop:web/b 127.0.0.1:2"
    assert list(list_commands(wanted(Server("b", "127.0.0.1:2")), {})) == []


def test_maps_are_brought_to_what_is_wanted() -> None:
    live = read_facts("0x55 shop:a 100\n0x56 shop:b 200\n0x57 shop:b|1 2\nName: HAProxy\n").holds
    assert live == {"shop:a": "100", "shop:b": "200"}
    found = list(map_commands("holds.map", {"shop:b": "300", "shop:c": "400"}, live))
    assert found == [
        "add map ./holds.map shop:c 400",
        "set map ./holds.map shop:b 300",
        "del map ./holds.map shop:a",
    ]


def test_the_facts_are_read() -> None:
    text = """\
Pid: 7
description: abc
CurrConns: 12

0x55 shop:a 100
0x56 shop:a none

0x57 shop:b|1 2
0x58 shop:b/x 1

# table: _counted, type: string, size:102400, used:1
0x59: key=shop:b use=0 exp=0 conn_cur=3 http_req_cnt=41
0x60: key=shop:c use=0 exp=0 shard=0 conn_cur=0 http_req_cnt=1
"""
    facts = read_facts(text)
    assert (facts.digest, facts.process, facts.holds) == ("abc", "7", {"shop:a": "100"})
    assert read_facts(f"Stopping: 1\n{text}").digest == ""
    assert (facts.connections, facts.empty) == (12, {"shop:a": "none"})
    assert facts.splits == {"shop:b|1": "2", "shop:b/x": "1"}
    assert facts.counted == {"shop:b": Counted(41, 3), "shop:c": Counted(1, 0)}


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        pytest.param(Counted(0, 0), Traffic(0, 0, 0), id="none"),
        pytest.param(Counted(7, 4), Traffic(7, 1, 3), id="some of them wait"),
        pytest.param(Counted(7, 2), Traffic(7, 0, 2), id="more wait than count"),
    ],
)
def test_only_requests_that_count_are_traffic(counted: Counted, expected: Traffic) -> None:
    assert StatReader().read(STAT)["shop:web"].traffic_of(counted) == expected


def test_a_cookie_leads_to_a_replica_at_each_step_of_a_change() -> None:
    """The number of replicas is added after them, and removed before them."""
    split = ((1, 50), (2, 50))
    one, two = (Server(name, f"127.0.0.1:{name[1]}", version=int(name[1])) for name in ("a1", "b2"))
    before = desired_entries([Backend(Service(WEB, 8080), 18_000, (one,), split=split)], {})
    after = desired_entries([Backend(Service(WEB, 8080), 18_000, (two,), split=split)], before)
    changes = [each.removeprefix("add map ./s ") for each in map_commands("s", after, {})]
    assert changes == ["shop:web|2|0 b2", "shop:web|2 1", "shop:web/b2 2"]
    changes = [each.removeprefix("del map ./s ") for each in map_commands("s", {}, before)]
    assert changes == ["shop:web/a1", "shop:web|1", "shop:web|1|0"]


def test_entries_stay_while_the_versions_of_replicas_are_unknown() -> None:
    adopted = Backend(Service(WEB, 8080), 18_000, (Server("a", "127.0.0.1:1"),), split=((1, 100),))
    live = {"shop:web|1": "1", "shop:web|1|0": "a", "shop:web/a": "1", "shop:other|1": "1"}
    assert desired_entries([adopted], live) == {key: live[key] for key in live if key.startswith("shop:web")}
    tcp = Service(WEB, 8080, "tcp")
    assert (
        desired_entries([Backend(tcp, 18_000, (Server("a", "127.0.0.1:1", version=1),), split=((1, 100),))], {}) == {}
    )


def test_memory_is_released_once_when_most_connections_of_a_flood_are_gone() -> None:
    floods = Floods()
    few = [floods.has_ended(count, at) for at, count in enumerate((99, 1, 90, 0, 0))]
    assert few == [False] * 5
    counts = [1000, 251, 250, 1, 0, 0, 1000, 0, 0, 500, 400, 1, 1, 1, 1]
    assert [at for at, count in enumerate(counts) if floods.has_ended(count, at)] == [3, 8, 13]
