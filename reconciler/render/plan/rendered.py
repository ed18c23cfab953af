"""What a command asks the daemon about plans, and the answer: each plan in the form in which it is printed."""

from __future__ import annotations

from typing import Any

import msgspec


class PlanRequest(msgspec.Struct, frozen=True):
    """Asks for the plans of the current revisions of ``sources`` in ``form``: text, json or markdown.

    ``settings`` is the digest of the settings of the command: a daemon with others does not plan. For ``blame`` see
    ``plan_source``; text has colours if ``colour``.
    """

    settings: str
    sources: list[str]
    form: str
    blame: bool | None
    colour: bool


class RenderedPlan(msgspec.Struct, frozen=True):
    """One plan: ``shown`` as text or Markdown, or ``document`` as JSON values, with the number of its steps.

    ``findings`` are those that the form has no place for. ``has_errors``: a file of the revision has errors, even if
    the settings skip it, or a location refuses a step.
    """

    changes: int
    has_errors: bool
    shown: str = ""
    document: dict[str, Any] | None = None
    findings: str = ""


class PlanAnswer(msgspec.Struct, frozen=True):
    """The answer to a ``PlanRequest``: one plan for each source; None if the command has to plan by itself."""

    plans: list[RenderedPlan] | None
