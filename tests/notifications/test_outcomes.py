"""Outcomes of runs become messages: each once, in order, and never backwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.model.finding import Finding
from reconciler.model.finding import Severity as FindingSeverity
from reconciler.notifications.bodies import format_text
from reconciler.notifications.message import EventType, MessageResource, State
from reconciler.notifications.outcomes import decode_notice
from reconciler.notifications.severity import Severity
from reconciler.records.notifications.deliveries import DeliveryStatus
from reconciler.settings import ApiSettings
from tests.notifications.harness import COMMIT, EVERY, NEXT, Post, notify, rule
from tests.records.samples import record
from tests.support.pipeline import BASE, PipelineHarness

MakePost = Callable[..., Post]


def everything(**fields: object) -> object:
    return notify(rule(states=EVERY, events=tuple(EventType), **fields))


def test_a_channel_without_rules_is_sent_failures_and_recoveries_alone(make_post: MakePost) -> None:
    post = make_post()
    post.run("running")
    post.run("applied")
    post.collect()
    assert post.titles() == []
    post.run("failed", NEXT, message="workload/shop/api: EngineFailed: no room", failed="x")
    post.run("failed", NEXT, message="workload/shop/api: EngineFailed: no room at 12:00", failed="x")
    post.collect()
    assert post.titles() == ["main: bbbbbbbbbbbb failed: workload/shop/api: EngineFailed: no room"]
    post.run("applied", "c" * 40)
    post.run("applied", "d" * 40)
    post.collect()
    assert post.titles()[1:] == ["main: cccccccccccc is applied; all is well again"]
    assert post.messages()[1].severity is Severity.ERROR


def test_a_commit_only_proceeds_and_what_is_not_sent_yet_is_replaced(make_post: MakePost) -> None:
    post = make_post(everything())
    post.run("running")
    post.collect()
    post.run("waiting", hold_digest="h" * 64, waiting=1)
    post.run("applied")
    post.run("running")
    post.collect()
    runs = [message for message in post.messages() if message.event is EventType.RUN]
    assert [message.state for message in runs] == [State.SUCCESS]
    assert runs[0].sequence == max(message.sequence for message in post.messages() if message.event is EventType.RUN)


def test_a_superseded_commit_ends_as_superseded(make_post: MakePost) -> None:
    post = make_post(everything())
    post.run("running")
    post.collect()
    post.run("running", NEXT)
    post.collect()
    states = {(message.commit[:1], message.state) for message in post.messages()}
    assert states == {("a", State.SUPERSEDED), ("b", State.RUNNING)}
    post.run("running", COMMIT)
    post.collect()
    last = {message.commit[:1]: message.state for message in post.messages()}
    assert last == {"a": State.SUPERSEDED, "b": State.SUPERSEDED}
    post.run("applied", COMMIT)
    post.collect()
    assert {message.commit[:1]: message.state for message in post.messages()}["a"] is State.SUCCESS


def test_a_refused_revision_has_its_findings_and_is_sent_once(make_post: MakePost) -> None:
    post = make_post()
    wrong = Finding("shop/api.yaml", 12, 7, "unknown-field", FindingSeverity.ERROR, "unknown field `replicsa`")
    for _ in range(3):
        post.run("refused", findings=(wrong,), message="1 error; the first: shop/api.yaml:12:7: unknown field")
        post.collect()
    (message,) = post.messages()
    assert (message.event, message.state, message.findings) == (EventType.REFUSED, State.FAILURE, (wrong,))
    assert message.title == "main: aaaaaaaaaaaa is refused: 1 error; the first: shop/api.yaml:12:7: unknown field"


def test_an_approval_is_asked_for_once_for_each_digest(make_post: MakePost) -> None:
    post = make_post(notify(rule(events=("approval",))))
    waiting = MessageResource("volumeset/shop/data", "delete", "local", "ApprovalRequired", "it deletes volumes")
    for _ in range(3):
        post.run("waiting", hold_digest="0123456789" * 6, waiting=1, resources=(waiting,), subject="Drop it")
        post.collect()
    post.run("waiting", hold_digest="f" * 60, waiting=2)
    post.collect()
    assert post.titles() == [
        "main: 1 step of aaaaaaaaaaaa waits for an approval",
        "main: 2 steps of aaaaaaaaaaaa wait for an approval",
    ]
    first = post.messages()[0]
    who = "Who may approve: an operator of the host"
    assert first.lines == ("Drop it", "To approve: reconciler approve 012345678901", who)
    assert [resource.key for resource in first.resources] == ["volumeset/shop/data"]


def test_who_may_approve_is_named_and_a_change_of_policies_is_no_message(make_post: MakePost) -> None:
    post = make_post(notify(rule(events=("approval",))))
    post.settings = msgspec.structs.replace(post.settings, api=ApiSettings("127.0.0.1:8443"), approval_four_eyes=True)
    post.collector = post.new_collector()
    post.collector.open()
    for group in ("ops", "leads"):
        binding = {"permissions": ["approve"], "principalLinks": [f"//group/{group}", "//user/ada@example.com"]}
        body = {"kind": "policy", "name": "ops", "targetKind": "org", "target": "all", "bindings": [binding]}
        policy = msgspec.structs.replace(record("policy/ops"), body=msgspec.json.encode(body))
        post.records.applied.put(policy)
        post.run("waiting", hold_digest="0123456789" * 6, waiting=1)
        post.collect()
    [message] = post.messages()
    who = "the groups ops and superusers, 1 other person, or an operator of the host, but no author of the change"
    assert message.lines[-1] == f"Who may approve: {who}"
    assert "@" not in format_text(message)


def test_an_approval_of_the_same_steps_is_asked_for_again_after_nothing_waited(make_post: MakePost) -> None:
    post = make_post(notify(rule(events=("approval",))))
    for outcome in ("waiting", "waiting", "running", "failed", "waiting", "applied", "waiting", "refused", "waiting"):
        fields = {"hold_digest": "0123456789" * 6, "waiting": 1} if outcome == "waiting" else {}
        post.run(outcome, **fields)
        post.collect(after=60)
        post.deliver()
    assert len(post.titles()) == 2


def test_a_failure_after_a_success_is_news_though_it_is_the_former_one(make_post: MakePost) -> None:
    post = make_post(notify(rule(interval=0.0)))
    for outcome in ("failed", "applied", "failed"):
        post.clock.block(1)
        post.run(outcome, failed="x" if outcome == "failed" else "")
        post.collect()
        post.deliver()
    assert [message.state for message in post.messages()] == [State.FAILURE, State.SUCCESS, State.FAILURE]


def test_a_commit_that_is_applied_again_after_another_is_a_message_again(make_post: MakePost) -> None:
    post = make_post(notify(rule(states=("success", "failure", "recovery"))))
    for outcome, commit in (("applied", COMMIT), ("applied", NEXT), ("applied", COMMIT), ("unchanged", COMMIT)):
        post.run(outcome, commit)
        post.collect(after=301)
        post.new_collector().collect()
        post.deliver()
    assert [message.commit for message in post.messages()] == [COMMIT, NEXT, COMMIT]
    assert {message.state for message in post.messages()} == {State.SUCCESS}


def test_a_rollback_to_a_commit_that_was_a_recovery_is_one_again(make_post: MakePost) -> None:
    post = make_post()
    for outcome in ("failed", "applied", "failed", "applied", "unchanged"):
        post.run(outcome, NEXT if outcome == "failed" else COMMIT, failed="x" * (outcome == "failed"))
        post.collect(after=301)
        post.deliver()
    assert [message.state for message in post.messages()] == [State.FAILURE, State.SUCCESS] * 2


def test_rules_choose_by_source_gvc_and_event(make_post: MakePost) -> None:
    settings = notify(
        rule("shop", ["shop"], gvcs=("shop",)),
        rule("edge", ["edge"], sources=("edge",)),
        rule("refusals", ["both"], events=("refused",)),
        rule("rest", ["both"], events=("run",), gvcs=("bank",)),
        channels=("shop", "edge", "both"),
    )
    post = make_post(settings, sources=("main", "edge"))
    post.run("failed", gvcs=("shop", "web"), failed="1")
    post.run("failed", NEXT, gvcs=("bank",), failed="2", source="edge")
    post.run("refused", "c" * 40)
    post.collect()
    commits = {name: [message.commit[:1] for message in post.messages(name)] for name in ("shop", "edge", "both")}
    assert commits == {"shop": ["a", "c"], "edge": ["b"], "both": ["b", "c"]}


def test_what_is_muted_is_listed_and_not_sent(make_post: MakePost) -> None:
    post = make_post()
    post.records.mutes.put("source/main", "the database moves", "ada", post.clock.now() + 60)
    post.run("failed", failed="1")
    post.collect()
    (delivery,) = post.records.deliveries.list()
    assert (delivery.status, delivery.answer) == (DeliveryStatus.MUTED, "muted by ada: the database moves")
    post.run("failed", NEXT, failed="1")
    post.collect(after=61)
    assert post.records.deliveries.list(1)[0].status is DeliveryStatus.WAITING


def test_a_crash_of_the_collector_neither_loses_nor_repeats(make_post: MakePost) -> None:
    post = make_post(everything())
    for number in range(20):
        post.run("failed", f"{number:040}", failed="x")
    before = post.records.deliveries.list()
    original = post.mine.notices.drop
    post.mine.notices.drop = _fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        post.collect()
    post.mine.notices.drop = original  # type: ignore[method-assign]
    assert post.records.deliveries.list() == before
    post.new_collector().collect()
    post.new_collector().collect()
    assert [message.commit for message in post.messages()] == [f"{number:040}" for number in range(20)]


def _fail(_: int) -> None:
    raise ZeroDivisionError


def test_a_run_writes_two_rows_and_without_the_setting_none(tmp_path: Path) -> None:
    rows = {}
    for name, settings in (("on", notify()), ("off", None)):
        harness = PipelineHarness(tmp_path / name, {"shop/gvc.yaml": BASE}, notifications=settings)
        harness.applied()
        rows[name] = [decode_notice(notice.body) for notice in harness.records.notices.list(10)]
    assert rows["off"] == []
    assert [(notice.outcome, notice.counts) for notice in rows["on"]] == [("running", {}), ("applied", {"created": 1})]
    assert rows["on"][1].gvcs == ("shop",)
    assert rows["on"][1].keys == ("gvc/shop",)
