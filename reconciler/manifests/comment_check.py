"""Comments that silence warnings: apply them to one file, and report those without effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from reconciler.documents.ignore_comments import MOST_COMMENTS, Comment, IgnoreComments, UnusedComment
from reconciler.model.finding import Fault, Severity
from reconciler.model.rule import Rule
from reconciler.model.suggest import find_closest_word
from reconciler.sops.rules import PLAIN_TEXT
from reconciler.sops.rules import RULES as SECRET_RULES

_SECRET_RULES = frozenset(rule.id for rule in SECRET_RULES)


def check_comments(
    ignored: IgnoreComments, faults: Sequence[Fault], own: tuple[Rule, ...], secrets: str
) -> tuple[list[Fault], tuple[UnusedComment, ...]]:
    """``faults`` without those that a comment in the file silences, plus those of the comments themselves.

    Also the comments that may still silence findings between resources. ``own`` are the rules of the decoder;
    ``secrets`` is the policy for secrets in plain text.
    """
    used = {
        id(fault): ignored.silencing(fault.line, fault.rule) for fault in faults if fault.severity is not Severity.ERROR
    }
    left = [fault for fault in faults if not used.get(id(fault))]
    # An error may hide a warning.
    whole = all(fault.severity is not Severity.ERROR for fault in faults)
    check = _Check(_mild_rules(own), secrets, set(used.values()), whole=whole)
    for comment in ignored.found:
        left.extend(check.faults(comment))
    if ignored.overflow:
        message = f"this file has more than {MOST_COMMENTS:,} of these comments; from here on they silence nothing"
        left.append(Fault("ignore-comment", message, ignored.overflow, 1, "split the file", Severity.WARNING))
    return left, tuple(check.pending)


class _MildRules(NamedTuple):
    """Ids of the rules that comments may silence, and of those among them that check other resources."""

    all: frozenset[str]
    among_neighbours: frozenset[str]


@cache
def _mild_rules(own: tuple[Rule, ...]) -> _MildRules:
    from reconciler.manifests.rules import cross_check_rules, load_rules

    every = (*own, *SECRET_RULES, *load_rules().values())
    mild = frozenset(rule.id for rule in every if rule.severity is not Severity.ERROR)
    return _MildRules(mild, mild & cross_check_rules())


class _Check:
    def __init__(self, mild: _MildRules, secrets: str, used: set[int], *, whole: bool) -> None:
        self.used = used
        self.whole = whole
        self.mild, self.among_neighbours = mild
        # These warnings depend on the host and its settings, not only on the file.
        self.host_dependent = _SECRET_RULES - ({PLAIN_TEXT} if secrets else set())
        self.pending: list[UnusedComment] = []

    def faults(self, comment: Comment) -> Iterator[Fault]:
        """The faults of ``comment``; none yet if other resources decide."""
        message = self._explain_malformed(comment)
        if message:
            near = find_closest_word(comment.rule[:60], self.mild) or "RULE"
            name = comment.rule if comment.rule in self.mild else near
            yield _make_fault(comment, message, f"write `# reconciler: ignore {name} REASON`")
        elif comment.line in self.used or not self.whole or comment.rule in self.host_dependent:
            return
        elif comment.rule in self.among_neighbours:
            self.pending.append(UnusedComment(comment.line, comment.column, comment.rule))
        else:
            yield _make_fault(comment, *unused_advice(comment.rule))

    def _explain_malformed(self, comment: Comment) -> str:
        if not comment.rule:
            return "this comment names no rule"
        if comment.rule not in self.mild:
            return f"there is no warning `{comment.rule}`, and errors cannot be silenced"
        return "" if comment.reason else f"this comment gives no reason why `{comment.rule}` does not matter here"


def unused_advice(rule: str) -> tuple[str, str]:
    """Message and suggestion about a comment that silences no warning of ``rule``."""
    return f"this comment silences nothing: `{rule}` does not warn here", "remove the comment"


def _make_fault(comment: Comment, message: str, hint: str) -> Fault:
    return Fault("ignore-comment", message, comment.line, comment.column, hint, Severity.WARNING)
