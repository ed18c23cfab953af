"""A runtime whose containers start, end and become ready by script, in the time of a fake clock, and what goes with it.

A container's image names how it behaves: see BEHAVIOURS in simulation/behaviour.py.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.host.decisions.replica import Replica, ReplicaContainer
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.probes.state import ProbeKind, Verdict
from reconciler.engines.host.runtimes.limitations import HostPrograms
from reconciler.engines.host.runtimes.protocol import (
    ContainerFiles,
    ContainerId,
    ContainerStart,
    ExecResult,
    OnEnd,
    OutputFile,
    OutputForm,
    RunningContainer,
    Usage,
)
from reconciler.engines.workload.environment import ContainerView
from reconciler.engines.workload.spec import ContainerSpec, WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.terminal.session import Channel, StreamOutput, TerminalSize
from tests.engines.host.simulation.behaviour import BEHAVIOURS, POST_START
from tests.support.clock import FakeClock


class CountedThreads(ThreadPoolExecutor):
    """The threads of an event loop; ``working`` counts the calls that it awaits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.working = 0
        self._loop = loop
        loop.set_default_executor(self)

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        """As Executor.submit."""
        future = super().submit(call, *args, **more)
        self.working += 1
        # After the callback of the loop, which gets the result first.
        self._loop.call_soon(future.add_done_callback, lambda _: self._loop.call_soon_threadsafe(self._end))
        return future

    def _end(self) -> None:
        self.working -= 1


class QuickClock(FakeClock):
    """A fake clock that advances when, and only when, no task is ready to run, and no thread works for one."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: CountedThreads | None = None

    async def run_until_idle(self) -> None:
        """Run all that is ready; more than a million turns mean an endless loop."""
        loop = asyncio.get_running_loop()
        self._threads = self._threads or CountedThreads(loop)
        for _ in range(1_000_000):
            await asyncio.sleep(0.001 if self._threads.working else 0)
            if not loop._ready and not self._threads.working:  # type: ignore[attr-defined]
                return
        raise AssertionError("no rest")


class Program(msgspec.Struct, eq=False):
    """A container as it really is, not as it is known; ``dead``: its liveness probe fails."""

    launch: ContainerStart
    started: float
    ready: bool
    alive: bool = True
    dead: bool = False
    memory: int = 0
    code: int = 0
    reason: str = ""


class RuntimeCall(msgspec.Struct, frozen=True):
    """A call to the runtime, and its time."""

    at: float
    verb: str
    replica: str
    container: str = ""


OnVerdict = Callable[[Verdict], None]


class Programs:
    """The containers of an imaginary machine; they outlive the daemon.

    ``unkillable`` is the number of SIGKILLs that fail.
    """

    def __init__(self, clock: QuickClock) -> None:
        self.clock = clock
        self.running: dict[ContainerId, Program] = {}
        self.calls: list[RuntimeCall] = []
        self.unkillable = 0
        self.on_end: OnEnd | None = None
        self.on_verdict: OnVerdict | None = None
        self._count = 0

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call once in ``seconds``; never, where they are infinite."""
        if math.isfinite(seconds):
            self._count += 1
            self.clock.after(f"program {self._count}", seconds, call)

    def note(self, verb: str, replica: str, container: str = "") -> None:
        """Record a call."""
        self.calls.append(RuntimeCall(self.clock.monotonic(), verb, replica, container))

    def places(self) -> list[ContainerId]:
        """Where something runs, in order of the names."""
        return sorted(place for place, program in self.running.items() if program.alive)

    def end(self, container_id: ContainerId, code: int, program: Program | None = None) -> None:
        """End the container; with ``program``, only if it is still that one."""
        running = self.running.get(container_id)
        if running is None or not running.alive or (program is not None and running is not program):
            return
        running.alive, running.code = False, code
        if self.on_end is not None:
            self.on_end(container_id)

    def verdict(self, container_id: ContainerId, kind: ProbeKind, good: bool, program: Program | None = None) -> None:
        """A probe of the container has another verdict from now on."""
        running = self.running.get(container_id)
        if running is None or not running.alive or (program is not None and running is not program):
            return
        if kind is ProbeKind.READINESS:
            running.ready = good
        else:
            running.dead = not good
        if self.on_verdict is not None:
            self.on_verdict(Verdict(container_id, running.started, kind, good, "" if good else "HTTP 503"))


class FakeSession:
    """The protocol ExecSession: a program that writes back what it reads, and ends with 0 at the end of its input."""

    def __init__(self, argv: Sequence[str], size: TerminalSize | None) -> None:
        self.argv = tuple(argv)
        self.size = size
        self._input: asyncio.Queue[bytes] = asyncio.Queue()

    async def write(self, content: bytes) -> None:
        """Take what is typed."""
        await self._input.put(content)

    async def close_stdin(self) -> None:
        """End the program."""
        await self._input.put(b"")

    async def read(self) -> StreamOutput | None:
        """The input of the session."""
        content = await self._input.get()
        return StreamOutput(Channel.STDOUT, content) if content else None

    async def resize(self, size: TerminalSize) -> None:
        """Remember the size."""
        self.size = size

    async def wait(self) -> int:
        """It succeeds."""
        return 0

    async def close(self) -> None:
        """End the program."""
        await self.close_stdin()


class FakeRuntime(HostPrograms):
    """The protocol of runtimes/protocol.py over ``programs``; several may follow each other over the same ones."""

    name = "fake"

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    async def open(self, on_end: OnEnd) -> None:
        """Report every end to ``on_end`` from now on."""
        self._programs.on_end = on_end

    async def close(self) -> None:
        """Report no further end."""
        self._programs.on_end = self._programs.on_verdict = None

    def limitations(self, wanted: WorkloadSpec) -> tuple[str, ...]:
        """Nothing is lacking."""
        return ()

    def prepare(self, wanted: WorkloadSpec) -> None:
        """Nothing is needed."""

    def owner(self, wanted: WorkloadSpec) -> Owner:
        """The user and group of the manifest."""
        return Owner(wanted.user, wanted.group)

    def make_view(self, files: ContainerFiles, ports: Mapping[int, int], directory: str) -> ContainerView:
        """Mounts at their paths and declared ports, as in a container with a file system and a network of its own."""
        return ContainerView("", "/endpoints", {each: each for each in ports}, directory)

    def holds_ports(self, key: Key, replica: str) -> bool:
        """Ports stay reserved while any part of the replica exists."""
        return any((place.key, place.replica) == (key, replica) for place in self._programs.running)

    async def start(self, launch: ContainerStart) -> None:
        """Start it, if its behaviour lets it start."""
        programs, container_id, behaviour = self._programs, launch.place, BEHAVIOURS[launch.image]
        found = programs.running.get(container_id)
        assert found is None or not found.alive, f"{container_id} is started while it runs"
        programs.note("start", container_id.replica, container_id.container)
        await asyncio.sleep(0)
        if not behaviour.starts:
            raise EngineError("no such program", reason=Reason.PROGRAM_NOT_FOUND, retry=True)
        programs.running.pop(container_id, None)
        program = Program(launch, programs.clock.monotonic(), behaviour.ready is None)
        programs.running[container_id] = program
        if behaviour.lives == 0:
            programs.end(container_id, 1, program)
        programs.later(behaviour.lives, lambda: programs.end(container_id, 1, program))
        await asyncio.sleep(0)

    async def resize(self, container_id: ContainerId, cpu: int, memory: int) -> None:
        """Note it, and fail for a container that is over."""
        found = self._programs.running.get(container_id)
        if found is None or not found.alive or memory < found.memory:
            raise EngineError("its limits cannot change", reason=Reason.LIMITS_FAILED)
        self._programs.note("resize", container_id.replica, container_id.container)

    async def signal(self, container_id: ContainerId, number: int) -> None:
        """SIGKILL ends it now, SIGTERM at the time of its behaviour."""
        programs, program = self._programs, self._programs.running.get(container_id)
        programs.note("kill" if number == signal.SIGKILL else "terminate", container_id.replica, container_id.container)
        await asyncio.sleep(0)
        killed = number == signal.SIGKILL
        if killed and programs.unkillable:
            programs.unkillable -= 1
            raise EngineError(f"{container_id.container} cannot be killed", reason=Reason.KILL_FAILED)
        if program is not None and program.alive:
            wait = 0.0 if killed else BEHAVIOURS[program.launch.image].obeys
            programs.later(wait, lambda: programs.end(container_id, 137 if killed else 143, program))

    async def exec(self, container_id: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a hook for as long as its behaviour sets."""
        program = self._programs.running[container_id]
        behaviour = BEHAVIOURS[program.launch.image]
        first = tuple(argv) == POST_START.command
        if not first:
            self._programs.note("runprestop", container_id.replica, container_id.container)
        takes = (behaviour.post_start if first else behaviour.pre_stop) or 0.0
        await self._programs.clock.sleep(min(takes, timeout))
        return ExecResult(0, "", timed_out=takes > timeout)

    async def open_session(
        self, container_id: ContainerId, argv: Sequence[str], terminal: TerminalSize | None
    ) -> FakeSession:
        """A session that writes back what it reads."""
        program = self._programs.running.get(container_id)
        if program is None or not program.alive:
            raise EngineError(f"{container_id.container} does not run", reason=Reason.NOT_RUNNING)
        return FakeSession(argv, terminal)

    async def stats(self) -> dict[ContainerId, Usage]:
        """No container uses the processor."""
        return {place: Usage(0.0, self._programs.running[place].memory) for place in self._programs.places()}

    async def list(self) -> list[RunningContainer]:
        """Programs that run, and ended ones that were neither removed nor started again."""
        return [
            RunningContainer(
                container_id,
                program.launch.version,
                program.launch.config_hash,
                program.launch.index,
                program.alive,
                program.started,
                None if program.alive else program.code,
                program.reason,
                ports=program.launch.ports,
            )
            for container_id, program in self._programs.running.items()
        ]

    def output(self, place: ContainerId) -> Path:
        """No container writes anything."""
        return Path("/dev/null")

    def output_form(self, place: ContainerId) -> OutputForm:
        """No container writes anything."""
        return OutputForm.PLAIN

    def outputs(self) -> Sequence[OutputFile]:
        """No container writes anything."""
        return []

    def append_output(self, place: ContainerId, text: str) -> None:
        """There are no readers."""

    def find_processes(self, place: ContainerId) -> frozenset[int]:
        """None are known."""
        return frozenset()

    def written_paths(self, place: ContainerId) -> tuple[Path, ...]:
        """No container writes anything."""
        return ()

    async def remove(self, key: Key, replica: str) -> None:
        """Forget a replica; what still runs of it is recorded in the calls."""
        self._programs.note("remove", replica)
        for container_id, program in list(self._programs.running.items()):
            if (container_id.key, container_id.replica) == (key, replica):
                if program.alive:
                    self._programs.note("removed running", replica, container_id.container)
                del self._programs.running[container_id]

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """A program in memory leaves nothing."""


class FakeProbing:
    """The protocol Probes of services.py: verdicts come at the times of the behaviour."""

    def __init__(self, programs: Programs, on_verdict: OnVerdict) -> None:
        self._programs = programs
        self._on_verdict = on_verdict
        self._watched: set[ContainerId] = set()
        programs.on_verdict = self._report

    def watch(
        self, container_id: ContainerId, container: ContainerSpec, ports: Mapping[int, int], seen: ReplicaContainer
    ) -> None:
        """Report its probes from now on; a verdict that came meanwhile, at once."""
        programs, program = self._programs, self._programs.running[container_id]
        behaviour, age = BEHAVIOURS[container.image], programs.clock.monotonic() - seen.started
        self._watched.add(container_id)
        if age:
            self._catch_up(container_id, program, seen)
        waits = (
            (ProbeKind.READINESS, True, behaviour.ready if behaviour.ready is not None else math.inf),
            (ProbeKind.READINESS, False, behaviour.unready),
            (ProbeKind.LIVENESS, False, behaviour.dead),
        )
        for kind, good, wait in waits:
            if wait > age or not age:
                self._arm(container_id, program, kind, good, wait - age)

    async def close(self) -> None:
        """Nothing runs by itself."""

    def _arm(self, place: ContainerId, program: Program, kind: ProbeKind, good: bool, wait: float) -> None:
        self._programs.later(wait, lambda: self._programs.verdict(place, kind, good, program))

    def _catch_up(self, container_id: ContainerId, program: Program, seen: ReplicaContainer) -> None:
        if program.ready != seen.ready:
            self._arm(container_id, program, ProbeKind.READINESS, program.ready, 0.0)
        if program.dead and seen.alive:
            self._arm(container_id, program, ProbeKind.LIVENESS, False, 0.0)

    def forget(self, place: ContainerId) -> None:
        """Report none of its probes any longer."""
        self._watched.discard(place)

    def _report(self, verdict: Verdict) -> None:
        if verdict.place in self._watched:
            self._on_verdict(verdict)


class FakeProvisioner:
    """The protocol ContainerProvisioner of services.py: containers get nothing but their behaviour."""

    def ports(self, wanted: WorkloadSpec, name: str) -> dict[int, int]:
        """One port, so that the pool has something to show."""
        return {8080: 20000}

    def reserve_ports(self, key: Key, replica: str, ports: Mapping[int, int]) -> None:
        """Nothing is reserved."""

    def reassign_ports(self, replica: Replica, container: str) -> dict[int, int]:
        """Nothing moves."""
        return replica.ports

    def store_template(self, replica: Replica) -> None:
        """The replica has all that it starts from."""

    async def attach(self, replica: Replica, container: str) -> None:
        """There is nothing to attach."""

    async def attach_again(self, replica: Replica, is_there: Callable[[], bool]) -> None:
        """As ``attach``."""

    def launch(self, replica: Replica, container: str) -> ContainerStart:
        """The replica, and how it behaves."""
        image = next(each.wanted.image for each in replica.containers if each.name == container)
        place = ContainerId(replica.key, replica.name, container)
        return ContainerStart(
            place, replica.version, replica.config_hash, replica.index, "", (), {}, image=image, ports=replica.ports
        )

    def release_ports(self, replica: Replica) -> None:
        """Nothing was reserved."""

    async def release(self, replica: Replica) -> None:
        """There is nothing to clear."""

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """There is nothing to clear."""


class FakeLogging:
    """The protocol LogCollection of services.py: it reads nothing."""

    def watch(self, place: ContainerId, path: Path, form: OutputForm) -> None:
        """Nothing is followed."""

    async def forget(self, place: ContainerId) -> object:
        """Nothing is forgotten."""
        return None
