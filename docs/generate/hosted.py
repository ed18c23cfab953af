"""Facts about the host engine for docs/host.md, from its code: variables, sentences, and times."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from reconciler.engines.host.decisions.actions import Kill, RunPreStop, ScheduleRestart, Terminate
from reconciler.engines.host.decisions.replica import Ended, Phase, Replica
from reconciler.engines.host.decisions.replica import ReplicaContainer as Running
from reconciler.engines.host.decisions.restarts import restart_policy
from reconciler.engines.host.decisions.termination import termination_steps
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.decisions.transitions import apply_action, hook_finished
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.runtimes.plugins import runtime_names
from reconciler.engines.host.runtimes.process.container_view import describe_view
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.protocol import ContainerFiles, ContainerId, ContainerStart
from reconciler.engines.workload.environment import PlatformEnvContext, build_environment
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.engines.workload.spec_builder import rollout_of
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.kinds.workload import Command, Container, Port, Specification
from tests.project.tree import modules

ROOT = Path("/var/lib/reconciler/host/aws-us-west-2")
WEB = Key(Kind.WORKLOAD, "shop", "web")
REPLICA = "web-x7k2p"
OWN = ROOT / "scratch/shop/web" / REPLICA / ".own/page"

MEANINGS = {
    "HOME": "An empty directory of the container, new at each start; the working directory if the manifest has no "
    "`workingDir`.",
    "HOSTNAME": "The replica's name. The hostname of the machine does not change.",
    "LANG": "The locale.",
    "PATH": "The search path for the program.",
    "PLATFORM_ENDPOINT": "The base address of the HTTP API. Only if the settings have `api.address` or `api.url`.",
    "PLATFORM_GLOBAL_ENDPOINT": "The public name of the workload, below the setting `endpointDomain`.",
    "PLATFORM_GVC": "The GVC.",
    "PLATFORM_GVC_ALIAS": "The GVC's alias: 13 letters and digits.",
    "PLATFORM_IMAGE": "The image, as in the manifest.",
    "PLATFORM_LOCATION": "Provider and region of the location, from its manifest or else from its name.",
    "PLATFORM_NAMESPACE": "A random-looking name, the same for all containers of a GVC.",
    "PLATFORM_ORG": "The org.",
    "PLATFORM_PROVIDER": "The provider: `byok` for your own location.",
    "PLATFORM_TOKEN": "A token for the HTTP API, for this workload alone: the same for all its replicas until the "
    "workload is deleted.",
    "PLATFORM_WORKLOAD": "The workload.",
    "PLATFORM_WORKLOAD_VERSION": "Its version.",
    "PORT": "The port to listen on: the one assigned for its first port, or for the declared port that `PORT` in the "
    "manifest names. Only in containers that declare a port.",
    "PORT_8080": "The port assigned for this declared port; one variable for each declared port of the workload, and "
    "for that of its metrics.",
    "RECONCILER_CONTAINER": "Location, GVC, workload, replica and container, so that the daemon finds its processes.",
    "RECONCILER_ENDPOINTS": "A directory with a file for each workload of the GVC, which lists its ready replicas.",
    "RECONCILER_PORTS": "The declared ports of the container, each with its port on this host.",
    "RECONCILER_REPLICA": "Version, index in a stateful workload (else -1), and the hash of its configuration.",
    "RECONCILER_ROOT": "The directory of the location.",
    "RECONCILER_VOLUMES": "The directory that contains each volume at its path.",
    "TMPDIR": "Another empty directory of the container, new at each start.",
}
"""Variable → its content."""


def variables() -> dict[str, str]:
    """The environment of a container without its own variables, at a location that is bound to this host."""
    around = PlatformEnvContext(
        "acme", "shop", "3zv8nzytpvojp", "aws-us-west-2", "aws", "us-west-2", "web", 2, "k5w0c3x2v8q1z", "…",
        "platform.local", api="https://reconciler.example.com",
    )  # fmt: skip
    page = Container("page", "//image/page:2", ports=(Port(8080),))
    place = ContainerId(WEB, REPLICA, "page")
    view = describe_view(ContainerFiles(place, (), Owner(), OWN, ROOT / "endpoints/shop"), {8080: 21649}, "")
    launch = ContainerStart(place, 2, "5f1c0b7a9e3d2468", -1, "python3", (), {})
    marks = ProcessLabels(ROOT, around.location).variables(launch)
    return dict(sorted((build_environment(page, around, view, _revealed) | marks).items()))


def _revealed(key: Key) -> SecretValue:
    raise KeyError(key)


def sentences() -> dict[str, list[str]]:
    """The sentences of the condition NotEnforced, each with its runtimes; `…` depends on the workload."""
    package = "reconciler/engines/host"
    found: dict[str, list[str]] = {}
    for runtime in runtime_names():
        for text in (
            *collect_texts(f"{package}/runtimes/{runtime}/limitations.py"),
            *collect_texts(f"{package}/runtimes/limitations.py"),
            *collect_texts(f"{package}/dataplane/limitations.py"),
            *collect_texts(f"{package}/dataplane/unserved_routes.py", "unserved_routes"),
            *collect_texts(f"{package}/dataplane/unserved_routes.py", "unserved_ingress"),
            *collect_texts(f"{package}/dataplane/unserved_routes.py", "endpoint_without_tls"),
            *collect_texts("reconciler/engines/workload/environment.py", "unset_variables"),
            *collect_texts(f"{package}/decisions/volumes.py", "limitations"),
            *collect_texts(f"{package}/dataplane/domains.py", "limitations"),
            *collect_texts(f"{package}/metrics/scraper.py", "limitations"),
        ):
            if " " in text and runtime not in found.setdefault(text, []):
                found[text].append(runtime)
    return found


def collect_texts(path: str, function: str = "") -> Iterator[str]:
    """The texts that a module, or one function of it, yields; `…` stands for what depends on a workload."""
    for top in modules()[path].body:
        if isinstance(top, ast.FunctionDef) and function in ("", top.name):
            for node in ast.walk(top):
                sentence = node.value if isinstance(node, ast.Yield) else getattr(node, "elt", None)
                if isinstance(sentence, ast.Constant | ast.JoinedStr):
                    yield _template(sentence)


def _template(sentence: ast.Constant | ast.JoinedStr) -> str:
    parts = sentence.values if isinstance(sentence, ast.JoinedStr) else [sentence]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


def waits(reason: str) -> list[float]:
    """Seconds until a container that ended for ``reason`` is restarted, for repeated ends, up to the longest delay."""
    found: list[float] = []
    while not found or found[-1] < Timing().backoff_cap:
        over = Running("main", Phase.ENDED, failures=len(found), last=Ended(1, 0.0, reason))
        (act,) = restart_policy(Replica(REPLICA, WEB, 1, "", 0.0, (over,)), 0.0, Timing()).actions
        assert isinstance(act, ScheduleRestart)
        found.append(act.start_at)
    return found


def surges(*replicas: int) -> list[tuple[str, str, str]]:
    """The most additional and unavailable replicas of a standard workload with the default rolloutOptions."""
    rollouts = ((number, rollout_of(Specification(type="standard"), number)) for number in replicas)
    return [(str(number), str(each.surge), str(each.unavailable)) for number, each in rollouts]


def course(hook: float | None, timing: Timing) -> tuple[float | None, float]:
    """When a container that ignores SIGTERM gets it (None: never) and SIGKILL, in seconds from the beginning.

    ``hook`` is the duration of its preStop hook in seconds, None without one.
    """
    spec = ContainerSpec("main", pre_stop=None if hook is None else Command(("drain",)))
    replica = Replica(REPLICA, WEB, 1, "", 0.0, (Running("main", Phase.RUNNING, wanted=spec),), ending=0.0)
    now, over, sigterm_at = 0.0, float("inf"), None
    while True:
        decision = termination_steps(replica, now, timing)
        for act in decision.actions:
            if isinstance(act, Kill):
                return sigterm_at, now
            if isinstance(act, RunPreStop):
                over = now + (hook or 0.0)
            if isinstance(act, Terminate):
                sigterm_at = now
            assert isinstance(act, RunPreStop | Terminate)
            replica = apply_action(replica, act, now)
        if not decision.actions:
            assert decision.wake is not None
            now = min(decision.wake, over)
            if now == over:
                replica, over = hook_finished(replica, "main", "pre_stop", "", now), float("inf")
