"""What happened to a workload between two observations is an event, once, in the words of the host."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from reconciler.engines.kubernetes.status.executions import END_SECONDS, INSTANTIATE, MANUAL
from reconciler.engines.kubernetes.status.hooks import LINGER_SECONDS, HookWatch, follow_pods, is_awaited
from reconciler.engines.kubernetes.status.news import WorkloadMoment, find_news, read_recorded_moment
from reconciler.engines.kubernetes.status.rollout import LiveWorkload, read_pods
from reconciler.engines.kubernetes.status.workload import StatusContext, workload_status
from reconciler.engines.workload.deployment import DeploymentTarget, Execution
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Job, Specification
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

NOW = 1_800_000_000.0
KEY = Key(Kind.WORKLOAD, "shop", "web")
SCALE = {"metric": "cpu", "minScale": 1, "maxScale": 5, "target": 60}


def make_live(*statuses: dict[str, Any], **parts: Any) -> LiveWorkload:
    """A workload with a pod ``web-N`` for each status of its container."""
    kind = parts.pop("type", "standard")
    body = {
        "type": kind,
        "containers": [{"name": "main", "image": "app:1"}],
        "defaultOptions": {"autoscaling": SCALE} if kind == "standard" else {},
        **({"job": {"schedule": "0 0 * * *"}} if kind == "cron" else {}),
    }
    spec = workload_spec(AppliedWorkload(KEY, "here", msgspec.convert(body, Specification), 1, "digest"), "hash")
    pods = [
        {
            "metadata": {"name": f"web-{number}", "creationTimestamp": at(0)},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", **status}]},
        }
        for number, status in enumerate(statuses)
    ]
    return LiveWorkload(spec, pods=tuple(pods), **parts)


def at(seconds: float) -> str:
    return format_iso_time(NOW + seconds)


def ended(restarts: int, code: int = 3, seconds: float = 10.0, **state: Any) -> dict[str, Any]:
    """The status of a container that has ended and was started again, unless ``state`` is another."""
    last = {"terminated": {"exitCode": code, "reason": "Error", "startedAt": at(0), "finishedAt": at(seconds)}}
    running = {"running": {"startedAt": at(seconds)}}
    return {"ready": True, "restartCount": restarts, "lastState": last, "state": state or running}


def list_news(before: WorkloadMoment | None, live: LiveWorkload) -> tuple[WorkloadMoment, list[tuple[Reason, str]]]:
    target = DeploymentTarget("here", "alias", 1, "example.net")
    _, deployment = workload_status(live, read_pods(live, NOW + 60), StatusContext(target, NOW + 60))
    return find_news(before, live, deployment, NOW + 60)


def test_an_end_of_a_container_is_news_once() -> None:
    moment, news = list_news(WorkloadMoment(), make_live(ended(1)))
    assert news == [(Reason.CONTAINER_ENDED, "web-0: main ended with 3 (Error)")]
    assert list_news(moment, make_live(ended(1)))[1] == []


def test_an_end_before_the_next_start_is_not_news_again_after_it() -> None:
    over = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": at(10)}}
    moment, news = list_news(WorkloadMoment(), make_live({"restartCount": 0, "state": over}))
    assert [reason for reason, _ in news] == [Reason.CONTAINER_ENDED]
    assert list_news(moment, make_live(ended(1)))[1] == []


def test_of_ends_in_a_row_the_first_and_each_tenth_after_it_is_news() -> None:
    moment, counts = WorkloadMoment(), []
    for number in range(1, 23):
        moment, news = list_news(moment, make_live(ended(number, seconds=number)))
        counts += [number] * len(news)
    assert counts == [1, 11, 21]


def test_after_a_long_run_the_next_end_is_the_first_one() -> None:
    moment, _ = list_news(WorkloadMoment(), make_live(ended(1)))
    assert len(list_news(moment, make_live(ended(2, seconds=1000)))[1]) == 1


def test_the_end_of_a_pod_that_is_deleted_is_no_news() -> None:
    live = make_live(ended(1))
    pod: Any = deepcopy(live.pods[0])
    pod["metadata"]["deletionTimestamp"] = at(20)
    assert list_news(WorkloadMoment(), msgspec.structs.replace(live, pods=(pod,)))[1] == []


def test_what_was_there_before_this_program_is_no_news() -> None:
    assert list_news(None, make_live(ended(5)))[1] == []
    assert read_recorded_moment(b"{}", make_live(ended(5)), NOW) is None


def test_what_happened_while_no_daemon_ran_is_news() -> None:
    target = DeploymentTarget("here", "alias", 1, "example.net")
    live = make_live(ended(1))
    _, deployment = workload_status(live, read_pods(live, NOW), StatusContext(target, NOW))
    state = msgspec.json.encode(deployment)
    for restarts, count in ((1, 0), (2, 1)):
        live = make_live(ended(restarts, seconds=1000))
        before = read_recorded_moment(state, live, NOW)
        assert before is not None
        assert len(list_news(before, live)[1]) == count


def test_an_image_that_cannot_be_pulled_is_news_once() -> None:
    def waits(reason: str) -> LiveWorkload:
        return make_live({"restartCount": 0, "state": {"waiting": {"reason": reason, "message": "not found"}}})

    moment, news = list_news(WorkloadMoment(), waits("ErrImagePull"))
    assert news == [(Reason.IMAGE_PULL_FAILED, "not found")]
    assert list_news(moment, waits("ImagePullBackOff"))[1] == []


def test_an_evicted_replica_is_news() -> None:
    live = make_live(ended(0))
    pod: Any = deepcopy(live.pods[0])
    pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}
    moment, news = list_news(WorkloadMoment(), msgspec.structs.replace(live, pods=(pod,)))
    assert (Reason.EVICTED, "web-0 is replaced: Evicted: the node was low on memory") in news
    assert list_news(moment, msgspec.structs.replace(live, pods=(pod,)))[1] == []


def test_another_number_of_an_autoscaler_is_news() -> None:
    def wants(replicas: int) -> LiveWorkload:
        current = [{"resource": {"current": {"averageUtilization": 90}}}]
        return make_live(autoscaler={"status": {"desiredReplicas": replicas, "currentMetrics": current}})

    moment, _ = list_news(WorkloadMoment(), wants(2))
    assert list_news(moment, wants(3))[1] == [(Reason.SCALED, "from 2 to 3 replicas: cpu is 90, its target 60")]


def run_of(number: int, status: str) -> Execution:
    """The execution with a number; one that has not succeeded has failed."""
    condition = {"type": "Failed", "reason": "Error", "message": "main ended with 3 (Error)"}
    return Execution(
        f"web-{number}", 1, status, at(number), at(number + 1), (condition,) if status != "Success" else ()
    )


def show_runs(before: WorkloadMoment, *statuses: str) -> tuple[WorkloadMoment, list[tuple[Reason, str]]]:
    """The news of a cron workload with executions of these statuses."""
    live = make_live(type="cron")
    target = DeploymentTarget("here", "alias", 1, "example.net")
    past = tuple(run_of(number, status) for number, status in enumerate(statuses))
    _, deployment = workload_status(live, read_pods(live, NOW + 60), StatusContext(target, NOW + 60, past=past))
    return find_news(before, live, deployment, NOW + 60)


def test_failed_executions_are_news_and_so_are_three_in_a_row_and_the_end_of_these() -> None:
    moment, news = show_runs(WorkloadMoment(), "Failure")
    assert news == [(Reason.EXECUTION_FAILED, "web-0: main ended with 3 (Error)")]
    moment, news = show_runs(moment, "Failure", "Failure", "Failure")
    assert [reason for reason, _ in news] == [*2 * (Reason.EXECUTION_FAILED,), Reason.EXECUTIONS_FAILING]
    moment, news = show_runs(moment, "Failure", "Failure", "Failure", "Success")
    assert news == [(Reason.EXECUTIONS_RECOVERED, "web-3 succeeded after 3 executions that failed in a row")]
    assert show_runs(moment, "Failure", "Failure", "Failure", "Success")[1] == []


def show_minutes(before: WorkloadMoment | None, minutes: int, policy: str = "Forbid", **annotations: str) -> list[str]:
    """The messages about an execution that began at ``NOW`` and runs for ``minutes``, with a schedule for each."""
    live = make_live(
        type="cron",
        jobs=({"metadata": {"name": "web-30000000", "creationTimestamp": at(0), "annotations": annotations}},),
    )
    job = Job(schedule="* * * * *", concurrency_policy=policy)
    live = msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, job=job))
    now = NOW + minutes * 60 + END_SECONDS
    target = DeploymentTarget("here", "alias", 1, "example.net")
    _, deployment = workload_status(live, read_pods(live, now), StatusContext(target, now))
    before = before or read_recorded_moment(msgspec.json.encode(deployment), live, now)
    return [text for reason, text in find_news(before, live, deployment, now)[1] if reason == Reason.EXECUTION_SKIPPED]


def test_of_skipped_times_the_first_and_each_tenth_after_it_is_news() -> None:
    assert show_minutes(WorkloadMoment(), 0) == []
    first = f"{at(60)} is skipped: web-30000000 still runs since {at(0)}"
    assert show_minutes(WorkloadMoment(), 1) == show_minutes(WorkloadMoment(), 2) == [first]
    begun = int(NOW // 60)
    assert show_minutes(WorkloadMoment(skipped=(begun + 1,)), 10) == []
    assert show_minutes(WorkloadMoment(skipped=(begun + 1,)), 11) == [first.replace(at(60), at(660), 1)]
    assert show_minutes(None, 11) == [], "who has begun just now does not know what was reported"


def test_nothing_is_skipped_where_the_next_execution_replaces_the_last_and_beside_one_on_demand() -> None:
    assert show_minutes(WorkloadMoment(), 11, "Replace") == []
    assert show_minutes(WorkloadMoment(), 11, **{INSTANTIATE: MANUAL}) == []


def hook_event(reason: str, message: str, uid: str = "u") -> dict[str, Any]:
    """A warning of a kubelet about the container of ``web-0``."""
    target = {"kind": "Pod", "name": "web-0", "uid": uid, "fieldPath": "spec.containers{main}"}
    return {"involvedObject": target, "reason": reason, "message": message, "lastTimestamp": at(10), "count": 3}


def test_a_hook_that_failed_is_news_once_for_each_pod() -> None:
    first = make_live({"ready": True}, events=(hook_event("FailedPostStartHook", "PostStartHook failed"),))
    moment, news = list_news(WorkloadMoment(), first)
    assert news == [(Reason.POST_START_FAILED, "web-0: the postStart hook of main failed")]
    assert list_news(moment, first)[1] == []
    again = make_live(
        {"ready": True},
        events=(*first.events, hook_event("FailedPreStopHook", "'x' exited with 7: , message", "another")),
    )
    assert list_news(moment, again)[1] == [(Reason.PRE_STOP_FAILED, "web-0: the preStop hook of main ended with 7")]
    _, deployment = workload_status(
        first, read_pods(first, NOW), StatusContext(DeploymentTarget("here", "alias", 1, "example.net"), NOW)
    )
    recorded = read_recorded_moment(msgspec.json.encode(deployment), first, NOW)
    assert list_news(recorded, first)[1] == [], "who has begun just now does not know what was reported"


def test_the_event_of_a_hook_is_awaited_for_as_long_as_its_pod_may_run_and_a_moment_more() -> None:
    live = make_live({"ready": True})
    pod: Any = deepcopy(live.pods[0])
    pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["drain"]}}}
    watch = follow_pods(HookWatch(), (pod,), NOW)
    assert not is_awaited(watch, (pod,), NOW)
    pod["metadata"]["deletionTimestamp"] = at(90)
    assert is_awaited(watch, (pod,), NOW)
    assert not is_awaited(watch, (pod,), NOW + 90 + 2 * LINGER_SECONDS), "its node is lost"
    gone = follow_pods(watch, (), NOW)
    assert is_awaited(gone, (), NOW)
    assert not is_awaited(follow_pods(gone, (), NOW + 2 * LINGER_SECONDS), (), NOW + 2 * LINGER_SECONDS)
    assert not is_awaited(follow_pods(follow_pods(HookWatch(), live.pods, NOW), (), NOW), (), NOW), "it has no hook"
