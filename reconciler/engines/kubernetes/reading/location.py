"""Reads a location on a cluster. An idle API imports this, so it imports what reads where it is used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from reconciler.engines.reading import ExecTarget, LogSelection, LogStream, ReplicaRow, Sender, TcpLink

if TYPE_CHECKING:
    from reconciler.engines.kubernetes.reading.logs import ClusterLogSearch
    from reconciler.engines.kubernetes.reading.pods import ClusterLocation
    from reconciler.engines.usage_history import UsagePoint
    from reconciler.engines.volumes import VolumeSnapshot
    from reconciler.model.key import Key
    from reconciler.settings import Settings
    from reconciler.terminal.session import ExecSession, TerminalSize

ENGINE = "kubernetes"
_CHECK_SECONDS = 3.0
"""Seconds for a check of who sends a request: others wait behind it."""


class KubernetesReader:
    """Shows replicas, logs and sessions of pods, and which workload sends a request. Everything raises EngineError."""

    engine = ENGINE

    def __init__(self, settings: Settings, location: str) -> None:
        self.location = location
        self._settings = settings

    @property
    def _place(self) -> ClusterLocation:
        from reconciler.engines.kubernetes.reading.pods import find_location

        return find_location(self._settings, self.location)

    def replicas(self) -> list[ReplicaRow]:
        """The replicas now; CPU and memory where the cluster measures them, as means over the moment before."""
        from reconciler.engines.kubernetes.reading.connections import ask_cluster
        from reconciler.engines.kubernetes.reading.replicas import list_replicas

        place = self._place
        return ask_cluster(place.cluster, partial(list_replicas, location=place))

    def usage_history(self, key: Key) -> list[UsagePoint]:
        """The points of a workload in the last day, as the daemon of this host asked the cluster for them."""
        from reconciler.clock import SystemClock
        from reconciler.engines.kubernetes.usage_sampler import find_history

        return find_history(self._settings.state, self.location).read(key, SystemClock().now())

    def log_streams(self) -> list[LogStream]:
        """The streams of existing pods: a cluster has no logs of deleted ones."""
        from reconciler.engines.kubernetes.reading.connections import ask_cluster
        from reconciler.engines.kubernetes.reading.logs import list_container_logs
        from reconciler.engines.kubernetes.reading.pods import list_pods

        place = self._place
        pods = ask_cluster(place.cluster, partial(list_pods, location=place))
        return [log.stream for log in list_container_logs(pods, self.location)]

    def search_logs(self, selection: LogSelection) -> ClusterLogSearch:
        """A search for what ``selection`` takes."""
        from reconciler.engines.kubernetes.reading.logs import ClusterLogSearch

        return ClusterLogSearch(self._place, selection)

    def final_snapshots(self) -> list[VolumeSnapshot]:
        """The final snapshots of deleted volumes."""
        from reconciler.engines.kubernetes.reading.connections import ask_cluster
        from reconciler.engines.kubernetes.reading.final_snapshots import list_final_snapshots

        place = self._place
        return ask_cluster(place.cluster, partial(list_final_snapshots, location=place))

    def delete_final_snapshot(self, snapshot: VolumeSnapshot) -> None:
        """Delete one of them."""
        from reconciler.engines.kubernetes.reading.connections import ask_cluster
        from reconciler.engines.kubernetes.reading.final_snapshots import delete_final_snapshot

        place = self._place
        ask_cluster(place.cluster, partial(delete_final_snapshot, location=place, snapshot=snapshot))

    async def open_session(self, target: ExecTarget, argv: Sequence[str], terminal: TerminalSize | None) -> ExecSession:
        """Run ``argv`` in a container of a pod of the workload."""
        from reconciler.engines.kubernetes.reading.session import open_cluster_session

        return await open_cluster_session(self._place, target, argv, terminal)

    def has_token(self, key: Key, token: str) -> bool:
        """Whether ``token`` is in the Secret of the workload."""
        from reconciler.engines.kubernetes.reading.connections import ask_cluster
        from reconciler.engines.kubernetes.reading.senders import is_stored_token

        place = self._place
        return ask_cluster(
            place.cluster, partial(is_stored_token, location=place, key=key, token=token), _CHECK_SECONDS
        )

    def is_sender(self, key: Key, token: str, sender: Sender) -> bool:
        """Whether the connection comes from the address of a running pod of the workload; no process here does."""
        from reconciler.engines.kubernetes.reading.connections import ask_cluster
        from reconciler.engines.kubernetes.reading.senders import has_address

        if not isinstance(sender, TcpLink) or not self.has_token(key, token):
            return False
        place = self._place
        ask = partial(has_address, location=place, key=key, host=sender.origin or sender.client.host)
        return ask_cluster(place.cluster, ask, _CHECK_SECONDS)
