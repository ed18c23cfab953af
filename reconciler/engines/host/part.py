"""What a location consists of: parts with one set of hooks, which are called in the order of the list of parts."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any

from reconciler.engines.host.probes.state import Verdict
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key
from reconciler.model.record import Record


class LocationPart:
    """A part of a location: it overrides the hooks that concern it, and the others do nothing.

    ``Location`` calls each hook of all parts in their order, in the event loop. A hook may raise EngineError where its
    text says so.
    """

    # For as long as the location is open

    async def open(self, records: Sequence[Record]) -> None:
        """Begin, with the workloads and volume sets that are ``records``. Raises EngineError.

        An earlier try may have failed halfway, and have been closed.
        """

    def work(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What runs from ``open`` to ``close``, each until it is cancelled."""
        return ()

    async def close(self) -> None:
        """Stop; what serves people goes on without the daemon. It may not have been opened."""

    def begin_schedules(self) -> None:
        """Do from now on what manifests schedule."""

    def refresh(self) -> None:
        """Read again what the records have beside workloads: secrets, holds, domains. Raises RecordsError."""

    # A workload

    def read_manifest(self, key: Key, body: bytes, revision: str) -> None:
        """Take from the manifest of a workload what no template has, such as tags; ``revision`` is its commit."""

    def want(self, _template: ReplicaTemplate, spec: WorkloadSpec) -> WorkloadSpec:
        """Take what is wanted of a workload now, and return what the next part has to take. Raises EngineError."""
        return spec

    def end(self, key: Key) -> None:
        """Begin to end a workload that is being deleted or replaced."""

    def forget(self, key: Key) -> None:
        """Remove what belongs to a workload of which nothing runs any more. Raises EngineError."""

    def retain(self, keys: Collection[Key]) -> None:
        """Forget all workloads but ``keys``: those that ended while no daemon ran. Raises EngineError."""

    def limitations(self, _template: ReplicaTemplate) -> Iterable[str]:
        """A sentence for each wish of a workload that this part does not fulfil; they become ``NotEnforced``."""
        return ()

    def error(self, _key: Key) -> str:
        """What this part fails to do for a workload; "" if nothing."""
        return ""

    # Signals of other parts, see LocationSignals

    def wake(self, key: Key) -> None:
        """A request waits for a replica of a workload."""

    def want_again(self, template: ReplicaTemplate) -> None:
        """Another number of replicas of a workload may be right now."""

    def reload(self, key: Key) -> None:
        """What a workload is made from is ready, or has changed."""

    def retry_starts(self) -> None:
        """What a start waits for may be free now."""

    def stop(self, _holder: str) -> bool:
        """End the replica that holds a volume, which starts again; False if there is none."""
        return False

    def provide_images(self, key: Key) -> None:
        """An image of a workload is gone: get it again."""

    def on_verdict(self, verdict: Verdict) -> None:
        """The verdict of a probe has changed."""

    def check_schedules(self) -> None:
        """The clock was set, or the machine was suspended: look again what is due."""

    def on_serving_change(self) -> None:
        """An address of a workload, or an error of serving it, has changed."""
