"""A cluster beside other locations: what does not answer there hides nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.errors import EngineError, RefusedError
from reconciler.logql.parser import parse_log_query
from reconciler.operations.exec import ExecOptions, find_target
from reconciler.overviews.showing import note_locations
from reconciler.queries.logs import Bounds, LogOptions, LogReader
from reconciler.queries.top import ReplicaReader
from reconciler.records.store import Records
from reconciler.render.replicas import replica_document, replica_table
from reconciler.render.style import TextStyle
from reconciler.settings import ClusterSettings, LocationSettings, Settings
from tests.engines.kubernetes.reading_kit import WEB, ReadCluster, texts_of

PLAIN = Bounds(lambda streams: streams, lambda lines: lines)


def with_another(cluster: ReadCluster) -> Settings:
    """Settings with a second location, ``gone``, on a cluster whose kubeconfig is missing."""
    gone = LocationSettings("kubernetes", cluster=ClusterSettings(Path("/nowhere/kubeconfig")))
    return msgspec.structs.replace(cluster.settings, locations={**cluster.settings.locations, "gone": gone})


def open_no_records() -> Records:
    raise AssertionError("nothing here needs records")


def make_options(location: str | None = None) -> LogOptions:
    return LogOptions(parse_log_query('{gvc="shop"}'), location=location)


def test_top_shows_the_others_and_names_the_fault(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    reader = ReplicaReader(with_another(cluster))
    assert [row.name for row in reader.read()] == ["web-1"]
    [note] = note_locations(reader)
    assert note.startswith("the replicas at gone are missing: the kubeconfig /nowhere/kubeconfig cannot be used")


def test_logs_show_the_others_and_name_the_fault(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00", "one")
    reader = LogReader(with_another(cluster), make_options(), PLAIN)
    assert texts_of(reader.newest()) == [b"one"]
    assert list(reader.faults) == ["gone"]
    assert reader.nothing_selected(open_no_records) == ""
    assert reader.more() == []


@pytest.mark.parametrize(
    "read",
    [
        lambda settings: ReplicaReader(settings).read(),
        lambda settings: LogReader(settings, make_options("gone"), PLAIN),
    ],
    ids=["replicas", "logs"],
)
def test_it_is_an_error_where_no_location_answers(cluster: ReadCluster, read: Callable[[Settings], object]) -> None:
    settings = with_another(cluster)
    cluster.server.stop()
    with pytest.raises(EngineError):
        read(settings)


def test_exec_reports_a_location_whose_replicas_are_unknown(cluster: ReadCluster) -> None:
    settings = with_another(cluster)
    with pytest.raises(RefusedError, match="it is unknown whether workload/shop/web has replicas: the kubeconfig"):
        find_target(settings, open_no_records, WEB, ExecOptions())
    cluster.add_pod("web-1")
    target = find_target(settings, open_no_records, WEB, ExecOptions())
    assert (target.location, target.replica, target.container) == ("here", "web-1", "main")


def test_replicas_of_a_cluster_show_their_nodes(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    rows = [msgspec.structs.replace(row, node="node-a") for row in ReplicaReader(cluster.settings).read()]
    heading, line = (text.split() for text in replica_table(rows, TextStyle()).splitlines())
    assert (heading[3], line[3]) == ("NODE", "node-a")
    assert replica_document(rows[0])["node"] == "node-a"
    bare = [msgspec.structs.replace(row, node="") for row in rows]
    assert "NODE" not in replica_table(bare, TextStyle())
    assert "node" not in replica_document(bare[0])
