"""Log queries: the part of LogQL that selects streams by label, and lines by content and by labels in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from reconciler.logql.extraction import Labels
from reconciler.logql.label_filters import LabelMatcher
from reconciler.logql.line_filters import LineFilter

LABELS = ("gvc", "workload", "location", "replica", "container")
"""The labels of a stream."""


class Stage(Protocol):
    """What a query does with one line after another, behind its first parser."""

    def filter_line(self, line: bytes, labels: Labels, stream: Mapping[str, str]) -> bytes | None:
        """The line as it goes on, None if it is not selected; adds to ``labels``, which begin as ``stream``."""


class LogQuery(msgspec.Struct, frozen=True):
    """Conditions on streams and on their lines; all must match.

    ``filters`` are those on whole lines at the beginning, ``stages`` all that follows them.
    """

    matchers: tuple[LabelMatcher, ...]
    filters: tuple[LineFilter, ...] = ()
    stages: tuple[Stage, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a stream with ``labels`` matches; a missing label counts as empty."""
        return all(matcher.matches(labels.get(matcher.label, "")) for matcher in self.matchers)

    @property
    def takes_all(self) -> bool:
        """Whether all lines of the streams match."""
        return not self.filters and not self.stages

    def may_match(self, text: bytes) -> bool:
        """Whether a line of ``text`` can match. Cheap, since it splits no lines; False is certain."""
        return all(line_filter.may_match(text) for line_filter in self.filters)

    def filter_lines(self, lines: Sequence[bytes], stream: Mapping[str, str]) -> Sequence[bytes]:
        """The ``lines`` of a stream with the labels ``stream`` that pass all filters and stages."""
        for line_filter in self.filters:
            lines = line_filter.filter_lines(lines)
        if not self.stages:
            return lines
        filtered_lines = (self._filter_line(line, stream) for line in lines)
        return [line for line in filtered_lines if line is not None]

    def _filter_line(self, line: bytes, stream: Mapping[str, str]) -> bytes | None:
        labels, raw = dict(stream), line
        for stage in self.stages:
            passed = stage.filter_line(raw, labels, stream)
            if passed is None:
                return None
            raw = passed
        return raw
