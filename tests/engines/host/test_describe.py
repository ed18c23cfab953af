"""A replica that is not ready says what it waits for."""

from __future__ import annotations

from reconciler.engines.deployment import Place
from reconciler.engines.host.decisions.actions import End, Start
from reconciler.engines.host.decisions.transitions import begun, ended, hooked, made
from reconciler.engines.host.replica import Replica
from reconciler.engines.host.spec import Type, Wanted, WantedContainer
from reconciler.engines.host.status import Circumstances, HostStatus, described
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Command, Options

HOOK = Command(("sleep", "1000"))
WANTED = Wanted(
    Key(Kind.WORKLOAD, "shop", "web"), Type.STANDARD, 1, "d", "s", 1, (WantedContainer("main", post_start=HOOK),),
    Options(),
)  # fmt: skip


def message(replica: Replica) -> str:
    """What is shown of it."""
    _, deployment = described(WANTED, [replica], Circumstances(Place("here", "alias", 1, "example.net"), 10.0, 0.0))
    assert isinstance(deployment.status, HostStatus)
    (shown,) = deployment.status.replicas
    assert shown.ready == replica.ready
    return shown.message


def test_a_clock_that_was_set_is_a_condition() -> None:
    around = Circumstances(Place("here", "alias", 1, "example.net"), 10.0, 0.0, jumped="set by +60 s")
    _, deployment = described(WANTED, [], around)
    assert isinstance(deployment.status, HostStatus)
    assert [(each.type, each.message) for each in deployment.status.conditions] == [("ClockJumped", "set by +60 s")]


def test_what_a_replica_waits_for_is_said() -> None:
    started = begun(made(WANTED, -1, "web-1", 1.0, ""), Start("web-1", "main"), 1.0)
    assert message(started) == "the postStart hook of main runs"
    assert message(hooked(started, "main", "post_start", "", 2.0)) == ""
    assert message(ended(started, "main", 2.0, 5, "Error", "")) == "ended with 5 (Error)"
    assert message(begun(started, End("web-1", "Replaced"), 2.0)) == "ending: Replaced"
