"""Registers rules: a rule is a small generator with an id, over the typed view of one kind."""

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
    """The section of docs/rules.md that the rules of a folder or module belong to."""

    MANIFESTS = "Manifests"
    CONTAINERS = "Containers"
    WORKLOADS = "Workloads, GVCs and volume sets"
    OTHERS = "Other kinds"
    BETWEEN = "Between resources"


class RuleEntry(NamedTuple):
    """A rule and its generator, which yields flaws, or questions about other resources."""

    rule: Rule
    check: Check


RULES: dict[str, Rule] = {}
"""Every rule of the modules that are loaded, by id."""

CHECKS: defaultdict[Kind, list[RuleEntry]] = defaultdict(list)
"""The rules for documents, by kind."""

CROSS_CHECKS: dict[str, CrossCheck] = {}
"""The functions that answer questions about other resources, by the rule's id."""

TRIVIAL: dict[str, TriviallyPasses] = {}
"""Functions that decide whether a question certainly has no finding, by the rule's id; one answer serves thousands."""


def register_rule(
    name: str, source: str, *kinds: Kind, severity: Severity = Severity.ERROR
) -> Callable[[_Check], _Check]:
    """Register a generator over the typed view of ``kinds`` as the rule ``name``; the page ``source`` documents it.

    The first paragraph of its docstring states the rule, the rest the reason. It yields a Flaw for each breach, and a
    Lookup for a question that the function under ``cross_rule(name)`` answers.
    """

    def register(check: _Check) -> _Check:
        what, _, why = inspect.cleandoc(check.__doc__ or "").partition("\n\n")
        written = Rule(name, severity, " ".join(what.split()), " ".join(why.split()), source)
        if RULES.setdefault(name, written).source != source:
            raise ValueError(f"two rules are called {name}")
        for kind in kinds:
            CHECKS[kind].append(RuleEntry(RULES[name], check))
        return check

    return register


def register_warning(name: str, source: str, *kinds: Kind) -> Callable[[_Check], _Check]:
    """``register_rule`` with the severity warning."""
    return register_rule(name, source, *kinds, severity=Severity.WARNING)


def register_notice(name: str, source: str, *kinds: Kind) -> Callable[[_Check], _Check]:
    """``register_rule`` with the severity notice."""
    return register_rule(name, source, *kinds, severity=Severity.NOTICE)


def cross_rule(name: str, quiet: TriviallyPasses | None = None) -> Callable[[_Check], _Check]:
    """Register the function that answers the questions of the rule ``name``: message and suggestion for each breach.

    Its arguments are the question, the key of the resource that asks, and the context. ``quiet`` may decide from
    question and context alone that there is no finding.
    """

    def register(function: _Check) -> _Check:
        CROSS_CHECKS[name] = function
        if quiet is not None:
            TRIVIAL[name] = quiet
        return function

    return register


def shared_cross_rule(name: str) -> Callable[[_Check], _Check]:
    """``cross_rule`` for a function whose answer does not depend on the resource that asks."""

    def register(function: _Check) -> _Check:
        return cross_rule(name, lambda question, world: next(function(question, "", world), None) is None)(function)

    return register
