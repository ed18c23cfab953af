"""Logs of pods: existing lines newest first, then new lines, each once."""

from __future__ import annotations

import time
from itertools import islice

import pytest

from reconciler.engines.kubernetes.reading import log_pages, logs
from reconciler.engines.kubernetes.reading.logs import ClusterLogSearch
from reconciler.engines.reading import LogLine, LogSpan, LogStream
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from reconciler.times import parse_time
from tests.engines.kubernetes.reading_kit import EVERYTHING, ReadCluster, namespace_of, running, select, texts_of

NOON = round(parse_time("2026-01-31T12:00:00Z") * 1000)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search asks as often as it is asked."""
    monkeypatch.setattr(logs, "POLLS_A_SECOND", 1e9)
    monkeypatch.setattr(logs, "LIST_SECONDS", 0.0)
    monkeypatch.setattr(logs, "RETRY_SECONDS", 0.0)


def search(cluster: ReadCluster, query: str = "") -> ClusterLogSearch:
    return cluster.reader.search_logs(select(query) if query else EVERYTHING)


def more(log_search: ClusterLogSearch) -> list[LogLine]:
    """The new lines, after a look for new pods."""
    log_search._next_list = 0.0
    return log_search.more()


def test_streams_are_the_containers_that_have_a_log(cluster: ReadCluster) -> None:
    cluster.add_pod("web-2", containers=("main", "side"), status=running(("main", "side")))
    cluster.add_pod("web-1")
    waiting = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    cluster.add_pod("web-3", status={"phase": "Pending", "containerStatuses": [waiting | {"name": "main"}]})
    assert cluster.reader.log_streams() == [
        LogStream("shop", "web", "web-1", "main", "here"),
        LogStream("shop", "web", "web-2", "main", "here"),
        LogStream("shop", "web", "web-2", "side", "here"),
    ]


def test_pods_of_others_have_no_stream(cluster: ReadCluster) -> None:
    """Another location, another daemon, a label that lies, and a pod without labels of ours."""
    cluster.server.create(namespace_of("depot", instance="other"))
    cluster.server.create(namespace_of("yard", location="there"))
    cluster.add_pod("web-1", Key(Kind.WORKLOAD, "depot", "web"))
    cluster.add_pod("web-1", Key(Kind.WORKLOAD, "yard", "web"), location="there")
    cluster.add_pod("web-1")
    cluster.server.patch("Pod", "web-1", "shop", {"metadata": {"labels": {"reconciler.dev/gvc": "depot"}}})
    assert cluster.reader.log_streams() == []


def test_lines_of_all_pods_come_newest_first(cluster: ReadCluster) -> None:
    for name in ("web-1", "web-2"):
        cluster.add_pod(name)
    cluster.write("web-1", "12:00:00.000000001", "one")
    cluster.write("web-2", "12:00:01", "two")
    cluster.write("web-1", "12:00:02", "three", "four")
    lines = list(search(cluster).backward())
    assert texts_of(lines) == [b"four", b"three", b"two", b"one"]
    assert [line.ms - NOON for line in lines] == [2000, 2000, 1000, 0]
    assert [line.stream.replica for line in lines] == ["web-1", "web-1", "web-2", "web-1"]


def test_a_span_takes_both_its_ends(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    for second in range(6):
        cluster.write("web-1", f"12:00:0{second}", str(second))
    span = LogSpan(NOON + 1000, NOON + 3000)
    assert texts_of(search(cluster).backward(span)) == [b"3", b"2", b"1"]


def test_text_is_as_it_was_written(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    texts = (b"", b" \tindented", b"\xff\x00 bytes\r", "naïve 2026-01-01T00:00:00Z".encode())
    cluster.write("web-1", "12:00:00", *texts)
    assert texts_of(search(cluster).backward()) == list(reversed(texts))


def test_a_selection_takes_streams_and_lines(cluster: ReadCluster) -> None:
    for name in ("web-1", "web-2"):
        cluster.add_pod(name)
        cluster.write(name, "12:00:00", f"{name} starts", f"{name} error")
    log_search = search(cluster, '{replica="web-2"} |= "error"')
    cluster.server.clear_requests()
    assert texts_of(log_search.backward()) == [b"web-2 error"]
    cluster.write("web-2", "12:00:01", "fine", "error again")
    assert texts_of(more(log_search)) == [b"error again"]
    assert not [request for request in cluster.server.requests if "web-1/log" in request.path]


def test_a_long_log_comes_in_pages_and_complete(cluster: ReadCluster) -> None:
    """Also where many lines have the same time, and where it grows meanwhile."""
    cluster.add_pod("web-1")
    for number in range(2000):
        cluster.write("web-1", f"12:{number // 600:02}:{number // 10 % 60:02}", f"line {number}")
    lines = search(cluster).backward()
    shown = texts_of(islice(lines, 150))
    for number in range(700):
        cluster.write("web-1", "13:00:00", f"new {number}")
    shown += texts_of(lines)
    assert shown == [f"line {number}".encode() for number in reversed(range(2000))]


def test_a_page_is_small_whatever_the_lines(cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "PAGE_BYTES", 1000)
    cluster.add_pod("web-1")
    for number in range(300):
        cluster.write("web-1", f"12:{number // 60:02}:{number % 60:02}", f"{number} " + "x" * 100)
    numbers = [int(line.text.split()[0]) for line in search(cluster).backward()]
    assert numbers == list(reversed(range(300)))


def test_lines_of_one_moment_are_not_lost_between_pages(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00", *(f"a {number}" for number in range(130)))
    cluster.write("web-1", "12:00:01", *(f"b {number}" for number in range(50)))
    assert len(set(texts_of(search(cluster).backward()))) == 180


def test_a_log_of_one_moment_is_complete(cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fits into a page."""
    monkeypatch.setattr(log_pages, "PAGE_BYTES", 1000)
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00", *(str(number) for number in range(450)))
    cluster.write("web-1", "12:00:01", "end")
    log_search = search(cluster)
    cluster.write("web-1", "12:00:01", "new")
    assert texts_of(log_search.backward())[0] == b"end"
    assert len(texts_of(log_search.backward())) == 451
    assert texts_of(more(log_search)) == [b"new"]


def test_a_present_run_of_one_moment_can_be_followed(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00", *(str(number) for number in range(150)))
    log_search = search(cluster)
    cluster.write("web-1", "12:00:00", "new")
    assert len(texts_of(log_search.backward())) == 150
    assert texts_of(more(log_search)) == [b"new"]


def test_the_run_before_a_restart_follows_the_present_one(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1", status=running(restarts=1))
    cluster.write("web-1", "12:00:00", "first", "failed", previous=True)
    cluster.write("web-1", "12:00:05", "again")
    assert texts_of(search(cluster).backward()) == [b"again", b"failed", b"first"]


def test_a_container_that_waits_for_its_restart_shows_its_last_run_once(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1", status=running(restarts=1))
    for previous in (True, False):
        cluster.write("web-1", "12:00:00", "first", "failed", previous=previous)
    log_search = search(cluster)
    assert texts_of(log_search.backward()) == [b"failed", b"first"]
    assert more(log_search) == []


def test_new_lines_come_once(cluster: ReadCluster) -> None:
    """Lines of the same time as the last one that was read, and equal ones, too."""
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00", "old")
    cluster.write("web-1", "12:00:00.5", "tick", "tick")
    log_search = search(cluster)
    assert more(log_search) == []
    cluster.write("web-1", "12:00:00.5", "tick", "tock")
    assert texts_of(more(log_search)) == [b"tick", b"tock"]
    assert more(log_search) == []
    cluster.write("web-1", "12:00:00.5", "tock")
    cluster.write("web-1", "12:00:07", "later")
    assert texts_of(more(log_search)) == [b"tock", b"later"]
    assert texts_of(log_search.backward()) == [b"tick", b"tick", b"old"]


def test_an_earlier_time_behind_a_later_one_is_new_too(cluster: ReadCluster) -> None:
    """Two outputs of a container can have times in another order than their lines."""
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00.9", "out")
    log_search = search(cluster)
    cluster.write("web-1", "12:00:00.8", "err")
    assert texts_of(more(log_search)) == [b"err"]
    cluster.write("web-1", "12:00:01", "out again")
    assert texts_of(more(log_search)) == [b"out again"]
    assert texts_of(search(cluster).backward()) == [b"out again", b"out", b"err"]


def test_new_pods_and_new_runs_are_followed(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00", "one")
    log_search = search(cluster)
    cluster.write("web-1", "12:00:01", "last words")
    cluster.restart("web-1")
    cluster.add_pod("web-2")
    cluster.write("web-2", "12:00:02", "another")
    cluster.write("web-1", "12:00:03", "again")
    assert texts_of(more(log_search)) == [b"last words", b"another", b"again"]
    cluster.server.delete("Pod", "web-2", "shop")
    cluster.write("web-1", "12:00:04", "still here")
    assert texts_of(more(log_search)) == [b"still here"]


def test_a_new_run_without_output_does_not_hide_the_last_words(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00", "one")
    log_search = search(cluster)
    cluster.write("web-1", "12:00:01", "last words")
    cluster.restart("web-1")
    assert texts_of(more(log_search)) == [b"last words"]
    assert more(log_search) == []
    cluster.write("web-1", "12:00:02", "again")
    assert texts_of(more(log_search)) == [b"again"]


def test_a_container_that_crashes_before_its_first_line_is_seen_shows_it(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    log_search = search(cluster)
    cluster.write("web-1", "12:00:01", "no configuration")
    cluster.restart("web-1")
    assert texts_of(more(log_search)) == [b"no configuration"]
    assert more(log_search) == []


def test_lines_after_a_rotation_are_new(cluster: ReadCluster) -> None:
    """The file of the log begins anew, and what was read last is not in it."""
    cluster.add_pod("web-1")
    cluster.write("web-1", "12:00:00.1", "one")
    cluster.write("web-1", "12:00:00.2", "two")
    log_search = search(cluster)
    cluster.server.pods.source("shop", "web-1", "main").lines.clear()
    cluster.write("web-1", "12:00:00.3", "three")
    assert texts_of(more(log_search)) == [b"three"]
    assert more(log_search) == []


def test_an_answer_that_is_cut_loses_and_repeats_nothing(cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with many new lines at once."""
    monkeypatch.setattr(log_pages, "NEW_BYTES", 1000)
    cluster.add_pod("web-1")
    log_search = search(cluster)
    cluster.write("web-1", "12:00:00", *(f"line {number}" for number in range(200)))
    shown: list[bytes] = []
    while new := texts_of(more(log_search)):
        assert len(new) < 100
        shown += new
    assert shown == [f"line {number}".encode() for number in range(200)]


def test_an_answer_that_breaks_off_loses_nothing(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    log_search = search(cluster)
    cluster.write("web-1", "12:00:00", *(f"line {number}" for number in range(50)))
    cluster.server.cut("GET */pods/web-1/log")
    assert more(log_search) == []
    assert len(more(log_search)) == 50


def test_a_cluster_that_stays_away_is_an_error(cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short absence is none."""
    cluster.add_pod("web-1")
    log_search = search(cluster)
    cluster.server.stop()
    assert more(log_search) == []
    cluster.server.start()
    cluster.write("web-1", "12:00:00", "here again")
    assert texts_of(more(log_search)) == [b"here again"]
    cluster.server.stop()
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(EngineError, match="does not answer"):
        more(log_search)


@pytest.mark.parametrize("status", [400, 404, 500, 502])
def test_a_pod_whose_log_cannot_be_read_hides_no_other(cluster: ReadCluster, status: int) -> None:
    for name in ("web-1", "web-2"):
        cluster.add_pod(name)
        cluster.write(name, "12:00:00", name)
    message = 'container "main" in pod "web-1" is waiting to start: ContainerCreating'
    cluster.server.fail("GET */pods/web-1/log", status, times=-1, message=message)
    log_search = search(cluster)
    assert texts_of(log_search.backward()) == [b"web-2"]
    cluster.write("web-2", "12:00:01", "more")
    assert texts_of(more(log_search)) == [b"more"]
    cluster.server.heal()
    assert texts_of(more(log_search)) == [b"web-1"]


def test_a_node_that_is_silent_hides_no_other(cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "SILENCE_SECONDS", 2.0)
    for name in ("web-1", "web-2"):
        cluster.add_pod(name)
        cluster.write(name, "12:00:00", name)
    cluster.server.stall("GET */pods/web-1/log")
    assert texts_of(search(cluster).backward()) == [b"web-2"]


def test_a_missing_right_is_reported(cluster: ReadCluster) -> None:
    cluster.add_pod("web-1")
    cluster.server.fail("GET */pods/web-1/log", 403, times=-1, message="pods/log is forbidden")
    with pytest.raises(EngineError, match="pods/log is forbidden") as raised:
        search(cluster)
    assert raised.value.reason == Reason.CLUSTER_FORBIDDEN


def test_many_containers_are_asked_less_often(cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLLS_A_SECOND", 0.001)
    cluster.add_pod("web-1")
    log_search = search(cluster)
    assert log_search.more() == []
    cluster.server.clear_requests()
    begin = time.monotonic()
    assert log_search.more() == []
    assert cluster.server.requests == []
    assert time.monotonic() - begin < 60


def test_an_ended_pod_still_has_its_log(cluster: ReadCluster) -> None:
    ended = {"name": "main", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
    cluster.add_pod("job-1", status={"phase": "Succeeded", "containerStatuses": [ended]})
    cluster.write("job-1", "12:00:00", "done")
    assert texts_of(search(cluster).backward()) == [b"done"]
    assert cluster.reader.replicas() == []
