"""Bugs on purpose: a rule that a test registers, and that raises at manifests with a certain mark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reconciler import bugs
from reconciler.manifests.rules import rules_of
from reconciler.manifests.rules.registry import CHECKS, RULES, register_rule
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind

MARK = "trips-a-bug"
"""A value of the tag ``test`` at which the rule raises."""

SECRET = "a text that may be a secret"
"""The text of the exception."""


def forget_logged() -> None:
    """Have every bug logged again, as in a new process."""
    bugs._logged.clear()


@contextmanager
def raising_rule(*kinds: Kind) -> Iterator[None]:
    """Every manifest of ``kinds`` (default: workloads) is checked by a rule that raises where it has the MARK."""
    kinds = kinds or (Kind.WORKLOAD,)

    def check(view: Any) -> Iterator[Flaw]:
        """Nothing."""
        if (view.tags or {}).get("test") == MARK:
            raise KeyError(SECRET)
        yield from ()

    for kind in kinds:
        rules_of(kind)
    register_rule("test-raises", "tests", *kinds)(check)
    rules_of.cache_clear()
    forget_logged()
    try:
        yield
    finally:
        del RULES["test-raises"]
        for kind in kinds:
            CHECKS[kind] = [entry for entry in CHECKS[kind] if entry.rule.id != "test-raises"]
        rules_of.cache_clear()
