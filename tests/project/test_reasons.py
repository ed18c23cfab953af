"""Reasons have one home: every one has its texts there, arises somewhere, and is written as a text nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reconciler.reasons import ConditionType, EventType, Reason, Use
from tests.project.tree import modules, walk

HOME = "reconciler/reasons.py"

SAME_WORDS = {
    "reconciler/render/plan/review.py": {"Refused"},
    "reconciler/render/replicas.py": {"Loading", "Ready"},
    "reconciler/render/resources.py": {"Applied", "Deleting", "Healthy", "Loading", "Recorded", "Unhealthy"},
    "reconciler/render/sources.py": {"Applied"},
    "reconciler/engines/host/controllers/executions.py": {"Failed"},
    "reconciler/engines/kubernetes/status/containers.py": {"Completed", "InvalidImageName", "Unhealthy"},
    "reconciler/engines/kubernetes/status/executions.py": {"Failed", "Suspended"},
    "reconciler/engines/kubernetes/status/pods.py": {"Failed"},
    "reconciler/engines/kubernetes/status/readiness.py": {"Failed", "Pending", "Suspended", "Terminating"},
    "reconciler/engines/reading.py": {"Loading", "Ready"},
    "reconciler/model/record.py": {"Deleting", "Healthy", "Loading", "Recorded", "Unhealthy"},
}
"""Words that mean something else: health, the state of a replica in a table, a heading, the condition of an
execution, and what Kubernetes calls states, conditions and reasons of its own."""

APPENDS = {"append", "NewEvent", "EngineEvent", "_recorded_as_event", "_append", "report"}
"""What is called to append an event."""

MAKERS = {
    "Condition": {"reconciler/records/tables/conditions.py", "reconciler/status/conditions.py"},
    "Event": {"reconciler/records/tables/events.py"},
}
"""Classes that are made in one place each."""


def test_every_reason_has_a_text_for_each_use() -> None:
    for reason in Reason:
        assert reason.texts, reason
        for use, text in reason.texts.items():
            assert text.meaning.endswith("."), reason
            assert text.advice.endswith(".") or not text.advice, reason
            assert bool(text.advice) is (use in (Use.RESOURCE, Use.SOURCE)), reason
    assert all(each.meaning.endswith(".") for each in ConditionType)


def test_every_reason_and_type_arises_somewhere() -> None:
    for kind in (Reason, ConditionType):
        used = {name for path, module in modules().items() if path != HOME for name in _members(module, kind.__name__)}
        assert used - {"from_stored"} == set(kind.__members__)


def test_no_reason_is_written_as_a_text() -> None:
    words = {*map(str, Reason), *map(str, ConditionType)}
    for path, module in modules().items():
        if path != HOME:
            texts = {node.value for node in walk(module) if isinstance(node, ast.Constant)}
            assert texts & words == SAME_WORDS.get(path, set()), path


def test_every_reason_of_an_event_has_a_text() -> None:
    found = {name for module in modules().values() for name in _of_events(module)}
    assert {"CREATED", "ADOPTED", "DISK_FULL", "CLOCK_STABLE", "DRIFT_CONFLICT", "SECRET_LOST"} - found == {"CREATED"}
    assert {name for name in found if Use.EVENT not in Reason[name].texts} == set()


def test_conditions_and_events_are_made_in_one_place() -> None:
    for name, places in MAKERS.items():
        for path, module in modules().items():
            made = any(isinstance(call.func, ast.Name) and call.func.id == name for call in _calls(module))
            assert not made or path in places or not _imports(module, name), path


def test_a_failure_becomes_a_warning_and_an_unknown_reason_a_failure() -> None:
    assert Reason.NO_FREE_PORT.event_type is EventType.WARNING
    assert Reason.CREATED.event_type is EventType.NORMAL
    assert Reason.from_stored("NoFreePort") is Reason.NO_FREE_PORT
    assert Reason.from_stored("NoSuchReason") is Reason.FAILED


def _members(module: ast.Module, kind: str) -> Iterator[str]:
    for node in walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == kind:
            yield node.attr


def _calls(module: ast.Module) -> Iterator[ast.Call]:
    yield from (node for node in walk(module) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _of_events(module: ast.Module) -> Iterator[str]:
    for call in _calls(module):
        if _name(call) in APPENDS:
            arguments = [*call.args, *(each.value for each in call.keywords)]
            yield from (name for each in arguments if isinstance(each, ast.Attribute) for name in _members_of(each))


def _members_of(node: ast.Attribute) -> Iterator[str]:
    if isinstance(node.value, ast.Name) and node.value.id == "Reason":
        yield node.attr


def _imports(module: ast.Module, name: str) -> bool:
    """Whether the class ``name`` of the records is what the module means by that name."""
    imports = (node for node in walk(module) if isinstance(node, ast.ImportFrom))
    return any(
        (each.module or "").startswith("reconciler.records") and any(alias.name == name for alias in each.names)
        for each in imports
    )
