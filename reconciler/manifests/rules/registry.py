"""How a rule is written down: a small generator with an id, over the typed view of one kind."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from reconciler.manifests.rules.context import RuleContext
from reconciler.model.finding import Flaw, Lookup, Severity
from reconciler.model.key import Kind
from reconciler.model.resource import LookupRequest
from reconciler.model.rule import Rule

Advice = tuple[str, str]
"""Message and suggestion."""

Check = Callable[[Any], Iterator[Flaw | Lookup]]
CrossCheck = Callable[[LookupRequest, str, RuleContext], Iterator[Advice]]
TriviallyPasses = Callable[[LookupRequest, RuleContext], bool]
_Check = TypeVar("_Check", bound=Callable[..., Iterator[Any]])


class Section(StrEnum):
    """What rules are about, by the folder or module that they stand in: its name in docs/rules.md."""

    MANIFESTS = "Manifests"
    CONTAINERS = "Containers"
    WORKLOADS = "Workloads, GVCs and volume sets"
    OTHERS = "Other kinds"
    BETWEEN = "Between resources"


class Entry(NamedTuple):
    """A rule with the generator that finds what breaks it, or that asks what has to be known for it."""

    rule: Rule
    check: Check


RULES: dict[str, Rule] = {}
"""Every rule of the modules that are loaded, by id."""

CHECKS: defaultdict[Kind, list[Entry]] = defaultdict(list)
"""What is looked at in a document, by kind."""

CROSS_CHECKS: dict[str, CrossCheck] = {}
"""What is looked at in the other resources that a rule asked about, by the rule's id."""

TRIVIAL: dict[str, TriviallyPasses] = {}
"""Whether there is nothing to answer whoever asks, by the rule's id; then thousands that ask the same are told once."""


def rule(name: str, source: str, *kinds: Kind, severity: Severity = Severity.ERROR) -> Callable[[_Check], _Check]:
    """Make a generator over the typed view of ``kinds`` the rule ``name``, as the page ``source`` asks.

    The first paragraph of its docstring says what holds, the rest why. It yields a Flaw for each breach, and an Ask
    for what only the function under ``cross_rule(name)`` can judge.
    """

    def register(check: _Check) -> _Check:
        what, _, why = inspect.cleandoc(check.__doc__ or "").partition("\n\n")
        written = Rule(name, severity, " ".join(what.split()), " ".join(why.split()), source)
        if RULES.setdefault(name, written).source != source:
            raise ValueError(f"two rules are called {name}")
        for kind in kinds:
            CHECKS[kind].append(Entry(RULES[name], check))
        return check

    return register


def warning(name: str, source: str, *kinds: Kind) -> Callable[[_Check], _Check]:
    """``rule`` for what is told and not refused."""
    return rule(name, source, *kinds, severity=Severity.WARNING)


def notice(name: str, source: str, *kinds: Kind) -> Callable[[_Check], _Check]:
    """``rule`` for what is only pointed out."""
    return rule(name, source, *kinds, severity=Severity.NOTICE)


def cross_rule(name: str, quiet: TriviallyPasses | None = None) -> Callable[[_Check], _Check]:
    """Make a function what answers the questions of the rule ``name``: message and suggestion for each breach.

    It is given the question, the key of the resource that asks, and the world. ``quiet`` may say from question and
    world alone that it would answer nothing.
    """

    def register(function: _Check) -> _Check:
        CROSS_CHECKS[name] = function
        if quiet is not None:
            TRIVIAL[name] = quiet
        return function

    return register


def shared_cross_rule(name: str) -> Callable[[_Check], _Check]:
    """``cross_rule`` for a function that takes no notice of who asks."""

    def register(function: _Check) -> _Check:
        return cross_rule(name, lambda question, world: next(function(question, "", world), None) is None)(function)

    return register
