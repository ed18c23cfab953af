"""The engine of a location on a fake cluster, with records, in one event loop."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.execution.retry import RetryPolicy
from reconciler.engines.kubernetes.engine import KubernetesEngine
from reconciler.engines.protocol import Observation, Outcome
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.settings import ClusterSettings, LocationSettings, Settings
from tests.kubernetes.api_server import FakeApiServer, fake_api_server
from tests.support.plans import ExecutorHarness, plan, step

PATIENCE = 120.0
"""Seconds that anything may take."""
NAME, SPACE = "web", "shop"
WEB = "workload/shop/web"
BODY: dict[str, Any] = {
    "kind": "workload",
    "name": NAME,
    "spec": {
        "type": "standard",
        "containers": [
            {
                "name": "main",
                "image": "nginx:1",
                "cpu": "1000m",
                "memory": "1024Mi",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"number": 8080, "protocol": "http"}],
            }
        ],
        "defaultOptions": {"autoscaling": {"metric": "disabled", "minScale": 2, "maxScale": 3}},
    },
}
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

Answer = TypeVar("Answer")


def change_body(**container: Any) -> dict[str, Any]:
    """The manifest of ``web`` with other fields of its container; None removes one."""
    body = copy.deepcopy(BODY)
    main = body["spec"]["containers"][0]
    main.update(container)
    for name in [name for name, value in main.items() if value is None]:
        del main[name]
    return body


def make_step(body: dict[str, Any], version: int = 1, action: Action = Action.UPDATE) -> Step:
    """A step of a workload of the GVC ``shop``."""
    return step(f"workload/shop/{body['name']}", action=action, version=version, body=body, engine="kubernetes")


class EngineHarness(ExecutorHarness):
    """The engine of ``location`` on a cluster; ``secrets`` are the values that its manifests may use."""

    clock_type = SystemClock

    def __init__(self, path: Path, kubeconfig: Path, location: str = "here", **cluster: Any) -> None:
        path.mkdir(parents=True, exist_ok=True)
        super().__init__(path, self.clock_type(), retry=RetryPolicy(base=0.01, cap=0.05, attempts=2))
        self.path = path
        self.location = location
        self.secrets: dict[str, SecretValue] = {}
        self.bound = ClusterSettings(kubeconfig=kubeconfig, **cluster)
        self._runner = asyncio.Runner()
        self.engine = self._make_engine()

    def _make_engine(self) -> KubernetesEngine:
        bound = LocationSettings("kubernetes", cluster=self.bound)
        settings = Settings("acme", (), self.path, locations={self.location: bound})
        context = EngineContext(LocationRecords(self.records, self.location), settings, self.clock, self._reveal)
        self.engines[self.location] = engine = KubernetesEngine(context)
        return engine

    def _reveal(self, key: Key) -> SecretValue:
        return self.secrets[key.name]

    def do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run ``work`` to its end."""
        return self._runner.run(work)

    def open(self) -> None:
        """Open the engine."""
        self.do(self.engine.open())

    def record_gvc(self, **body: Any) -> None:
        """Record the GVC ``shop``, as a run does before the steps of its workloads."""
        content = json.dumps({"kind": "gvc", "name": SPACE, **body}).encode()
        key = Key(Kind.GVC, "", SPACE)
        self.records.applied.put(Record(key, "", "main", "digest", content, 1, "", Health.RECORDED))

    def begin_anew(self) -> None:
        """Another engine, as after a restart of the daemon."""
        self.do(self.engine.close())
        self.engine = self._make_engine()
        self.open()

    def close(self) -> None:
        """Let go; what runs goes on."""
        self.do(self.engine.close())
        self._runner.close()
        self.records.close()

    def apply(self, *steps: Step) -> dict[str, Outcome]:
        """Perform and record steps."""
        placed = [msgspec.structs.replace(step, location=self.location) for step in steps]
        outcomes = self.do(self.run(plan(*placed)))
        return {str(outcome.id.key): outcome for outcome in outcomes}

    def apply_web(self, version: int = 1, **container: Any) -> Outcome:
        """Perform the manifest of ``web`` with other fields of its container."""
        return self.apply(make_step(change_body(**container), version))[WEB]

    def delete_web(self) -> Outcome:
        """Perform the deletion once."""
        return self.apply(make_step(BODY, action=Action.DELETE))[WEB]

    def see(self) -> dict[str, Observation]:
        """What the engine observes, by key."""
        return {str(seen.key): seen for seen in self.do(self.engine.observe())}

    def see_web(self) -> Observation:
        """What the engine observes of ``web``."""
        return self.see()[WEB]

    def rest(self, seconds: float = 0.02) -> None:
        """Let watches and the work of the engine go on."""
        self.do(asyncio.sleep(seconds))

    def until(self, condition: Callable[[], Answer], what: str = "") -> Answer:
        """What ``condition`` returns once that is something."""
        end = time.monotonic() + PATIENCE
        while not (answer := condition()):
            assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
            self.rest()
        return answer

    def wait_for_health(self) -> None:
        """Return once all is well, and the watches have shown all that was written."""
        self.until(lambda: all(seen.health.is_good for seen in self.see().values()), "all is well")
        self.catch_up()

    def catch_up(self) -> None:
        """Let the watches show what was written."""
        self.rest(0.3)


class ClusterHarness(EngineHarness):
    """The engine of ``location`` on a fake cluster."""

    def __init__(self, path: Path, server: FakeApiServer, location: str = "here", **cluster: Any) -> None:
        self.server = server
        super().__init__(path, server.kubeconfig, location, **cluster)

    def catch_up(self) -> None:
        """Return once the mirror has what the server has, of all kinds of the namespace that are watched."""
        self.until(lambda: not self._list_unseen(), f"the mirror has {self._list_unseen()}")

    def _list_unseen(self) -> list[str]:
        mirror = self.engine._mirror
        unseen = []
        for kind, items in mirror._objects.items():
            there = {
                (value["metadata"].get("namespace", ""), value["metadata"]["name"]): value["metadata"]
                for value in self.server.objects(kind.kind, group=kind.group)
            }
            for target, item in items.items():
                metadata = there.get((target.namespace, target.name))
                if metadata is None or metadata["resourceVersion"] != item.version:
                    unseen.append(str(target))
        return unseen

    def writes(self) -> list[str]:
        """The requests that changed something, or would, since `FakeApiServer.clear_requests`."""
        return [repr(request) for request in self.server.requests if request.verb in WRITES]

    def names(self, kind: str, namespace: str = SPACE) -> list[str]:
        """The names of the objects of a kind."""
        return [value["metadata"]["name"] for value in self.server.objects(kind, namespace)]


@contextmanager
def engine_on_fake(path: Path, **cluster: Any) -> Iterator[ClusterHarness]:
    """An open engine on a fake cluster whose controllers act by themselves."""
    with fake_api_server(path / "cluster") as server:
        server.run_controllers()
        harness = ClusterHarness(path / "engine", server, **cluster)
        harness.open()
        try:
            yield harness
        finally:
            harness.close()
