"""The result of one check: a verdict and advice."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """Severity: a warning works for now, a problem does not work or is not safe."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(msgspec.Struct, frozen=True):
    """``about`` names the subject in a word or two; ``advice`` is "" if nothing needs to be done."""

    about: str
    verdict: Verdict
    message: str
    advice: str = ""


def fine(about: str, message: str) -> Check:
    """A check without a problem."""
    return Check(about, Verdict.OK, message)


def warning(about: str, message: str, advice: str) -> Check:
    """A check of something that works but needs attention."""
    return Check(about, Verdict.WARNING, message, advice)


def problem(about: str, message: str, advice: str) -> Check:
    """A check of something that does not work, or is not safe."""
    return Check(about, Verdict.PROBLEM, message, advice)
