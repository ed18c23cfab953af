"""Parses log queries, and names the place and the way out of what they cannot have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from reconciler.errors import ParseError
from reconciler.logql.addresses import AddressRange, parse_addresses
from reconciler.logql.extraction import (
    Extraction,
    Labels,
    Path,
    expression_extraction,
    json_extraction,
    logfmt_extraction,
    parse_path,
    pattern_expression,
)
from reconciler.logql.label_filters import (
    Both,
    Comparison,
    Condition,
    Either,
    LabelFilter,
    LabelMatcher,
    reader_of,
)
from reconciler.logql.line_filters import Alternative, LineFilter, as_bytes
from reconciler.logql.query import LABELS, LogQuery, Stage
from reconciler.logql.regex import ExpressionError, compile_expression
from reconciler.logql.tokens import QueryError, QueryTokens, Quoted
from reconciler.model.suggest import find_closest_word

LONGEST = 10_000
"""Characters of a query."""
DEEPEST = 50
"""Parentheses within one another."""

Read = TypeVar("Read")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONDITION = re.compile(r"[A-Za-z_(]")
_MATCHING = re.compile(r"=~|!~|!=|=")
_FILTERING = re.compile(r"\|=|\|~|\|>|!=|!~|!>")
_COMPARING = re.compile(r"=~|!~|!=|==|=|>=|<=|>|<")
_VALUE = re.compile(r"-?[0-9.][0-9A-Za-zµ.]*")
_FLAG = re.compile(r"--[a-z-]+")
_IP = re.compile(r"ip\s*\(")
_JOINING = re.compile(r"(?:and|or)\b")
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_METRICS = frozenset(
    {
        "rate",
        "rate_counter",
        "bytes_rate",
        "bytes_over_time",
        "count_over_time",
        "absent_over_time",
        "sum_over_time",
        "avg_over_time",
        "min_over_time",
        "max_over_time",
        "first_over_time",
        "last_over_time",
        "stddev_over_time",
        "stdvar_over_time",
        "quantile_over_time",
        "label_replace",
        "vector",
        "sort",
        "sort_desc",
        "sum",
        "avg",
        "min",
        "max",
        "count",
        "stddev",
        "stdvar",
        "bottomk",
        "topk",
        "approx_topk",
    }
)
"""Functions that make numbers of lines."""
_UNAVAILABLE = {
    "line_format": "lines are shown as they were written",
    "label_format": "labels are only compared",
    "unpack": "read the fields with `json`",
    "unwrap": "it is for metric queries, and this selects lines",
    "distinct": "all lines are shown",
    "drop": "labels are not shown, so leave it out",
    "keep": "labels are not shown, so leave it out",
}
"""Stages of LogQL that are not here → why, or what to do."""
_FILTER_HINT = 'lines are chosen by |= != |~ !~ and a text, such as |= "error", or by | and a stage, such as | json'


class Decolorize(msgspec.Struct, frozen=True):
    """Lines without the colours of a terminal."""

    def filter_line(self, line: bytes, labels: Labels, stream: Mapping[str, str]) -> bytes | None:  # noqa: ARG002
        """The line without them."""
        return _ANSI.sub(b"", line)


class LineStage(msgspec.Struct, frozen=True):
    """A condition on lines behind a parser."""

    condition: LineFilter

    def filter_line(self, line: bytes, labels: Labels, stream: Mapping[str, str]) -> bytes | None:  # noqa: ARG002
        """The line if it matches."""
        return line if self.condition.passes(line) else None


def parse_log_query(text: str) -> LogQuery:
    """Parse ``{gvc="shop", workload=~"web|api"} |= "error" | json | status >= 500``.

    Raises QueryError and nothing else.
    """
    try:
        as_bytes(text)
    except UnicodeEncodeError as error:
        raise QueryError("this is no character", error.start) from None
    if len(text) > LONGEST:
        raise QueryError(f"a query has at most {LONGEST:,} characters", LONGEST)
    return _Parser(text).query()


class _Parser:
    """Parses one query from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = QueryTokens(text)
        self._has_labels = False
        """Whether a parser has added labels that no one can know."""
        self._depth = 0

    def query(self) -> LogQuery:
        self._refuse_metrics()
        self._tokens.expect("{", 'a query begins with streams in braces, such as {gvc="shop"}')
        matchers = self._matchers()
        filters: list[LineFilter] = []
        stages: list[Stage] = []
        while not self._tokens.is_at_end():
            if self._tokens.peek(_FILTERING):
                line_filter = self._line_filter()
                if stages:
                    stages.append(LineStage(line_filter))
                else:
                    filters.append(line_filter)
                continue
            self._tokens.expect("|", _FILTER_HINT)
            stages.append(self._stage())
        return LogQuery(matchers, tuple(filters), tuple(stages))

    def _refuse_metrics(self) -> None:
        name = self._tokens.peek(_NAME)
        if name in _METRICS:
            message = f"`{name}` makes a metric query, and this selects lines: write what stands in braces, and filters"
            raise QueryError(message, self._tokens.at)

    def _matchers(self) -> tuple[LabelMatcher, ...]:
        begin = self._tokens.at - 1
        matchers: list[LabelMatcher] = []
        if not self._tokens.take_if_next("}"):
            matchers.append(self._matcher())
            while self._tokens.take_if_next(","):
                matchers.append(self._matcher())
            self._tokens.expect("}", "`,` and another label, or `}`, is missing here")
        if all(matcher.matches("") for matcher in matchers):
            hint = 'such as gvc="shop" or workload=~".+"'
            raise QueryError(f"at least one label has to be asked for that is not empty, {hint}", begin)
        return tuple(matchers)

    def _matcher(self) -> LabelMatcher:
        self._tokens.skip()
        name = self._tokens.take(_NAME, f"a label is missing here: {', '.join(LABELS)}")
        self._check_label(name, self._tokens.at - len(name), "")
        self._tokens.skip()
        op = self._tokens.take(_MATCHING, "after a label comes one of = != =~ !~")
        quoted = self._tokens.read_quoted()
        return LabelMatcher(name, op, quoted.value, _compile_quoted_expression(quoted) if "~" in op else None)

    def _check_label(self, name: str, at: int, hint: str) -> None:
        if name not in LABELS:
            close = find_closest_word(name, LABELS)
            advice = f"did you mean {close}?" if close else f"there are {', '.join(LABELS)}{hint}"
            raise QueryError(f"there is no label {name}; {advice}", at)

    def _line_filter(self) -> LineFilter:
        op = self._tokens.take(_FILTERING, _FILTER_HINT)
        alternatives = [self._alternative(op)]
        while self._tokens.peek(_JOINING) == "or":
            self._tokens.take(_JOINING, "")
            alternatives.append(self._alternative(op))
        return LineFilter(op.startswith("|"), tuple(alternatives))

    def _alternative(self, op: str) -> Alternative:
        if op in ("|=", "!=") and (addresses := self._addresses()) is not None:
            return Alternative("", addresses=addresses)
        quoted = self._tokens.read_quoted()
        if op.endswith("~"):
            return Alternative(quoted.value, _compile_quoted_expression(quoted))
        if op.endswith(">"):
            return Alternative(
                quoted.value, _read_quoted_value(quoted, lambda text: pattern_expression(text, whole=True))
            )
        return Alternative(quoted.value)

    def _addresses(self) -> AddressRange | None:
        """The addresses of ``ip("…")``; None if something else comes."""
        if not self._tokens.peek(_IP):
            return None
        self._tokens.take(_IP, "")
        quoted = self._tokens.read_quoted()
        try:
            addresses = parse_addresses(quoted.value)
        except ValueError:
            message = 'ip() takes an address, a range or a network: "10.0.0.1", "10.0.0.1-10.0.0.9", "10.0.0.0/8"'
            raise QueryError(message, quoted.at) from None
        self._tokens.expect(")", "`)` is missing here")
        return addresses

    def _stage(self) -> Stage:
        self._tokens.skip()
        begin, name = self._tokens.at, self._tokens.peek(_NAME)
        if name in _UNAVAILABLE:
            raise QueryError(f"the stage `{name}` is not available: {_UNAVAILABLE[name]}", begin)
        if name in self._parsers:
            self._tokens.take(_NAME, "")
            self._has_labels = True
            return self._parsers[name](self)
        if name == "decolorize":
            self._tokens.take(_NAME, "")
            return Decolorize()
        return LabelFilter(self._either())

    def _json(self) -> Extraction:
        return json_extraction(self._fields())

    def _logfmt(self) -> Extraction:
        flags = set[str]()
        while flag := self._tokens.peek(_FLAG):
            if flag not in ("--strict", "--keep-empty"):
                raise QueryError("logfmt takes --strict and --keep-empty", self._tokens.at)
            flags.add(self._tokens.take(_FLAG, ""))
        return logfmt_extraction(self._fields(), strict="--strict" in flags, keep_empty="--keep-empty" in flags)

    def _regexp(self) -> Extraction:
        quoted = self._tokens.read_quoted()
        pattern = _compile_quoted_expression(quoted)
        if not pattern.groupindex:
            raise QueryError("the expression has at least one group with a name, such as (?P<level>[a-z]+)", quoted.at)
        return expression_extraction(pattern)

    def _pattern(self) -> Extraction:
        quoted = self._tokens.read_quoted()
        return expression_extraction(_read_quoted_value(quoted, lambda text: pattern_expression(text, whole=False)))

    _parsers: Mapping[str, Callable[[_Parser], Extraction]] = {
        "json": _json,
        "logfmt": _logfmt,
        "regexp": _regexp,
        "pattern": _pattern,
    }
    """The stages that add labels."""

    def _fields(self) -> dict[str, Path]:
        """The fields that a parser chooses, by label; {} for all of them."""
        fields: dict[str, Path] = {}
        while label := self._tokens.peek(_NAME):
            self._tokens.take(_NAME, "")
            if self._tokens.take_if_next("="):
                fields[label] = _read_quoted_value(self._tokens.read_quoted(), parse_path)
            else:
                fields[label] = (label,)
            if not self._tokens.take_if_next(","):
                break
        return fields

    def _either(self) -> Condition:
        condition = self._both()
        while self._tokens.peek(_JOINING) == "or":
            self._tokens.take(_JOINING, "")
            condition = Either(condition, self._both())
        return condition

    def _both(self) -> Condition:
        condition = self._condition()
        while True:
            if self._tokens.peek(_JOINING) == "and":
                self._tokens.take(_JOINING, "")
            elif not self._tokens.take_if_next(",") and (
                self._tokens.peek(_JOINING) or not self._tokens.peek(_CONDITION)
            ):
                return condition
            condition = Both(condition, self._condition())

    def _condition(self) -> Condition:
        if self._tokens.take_if_next("("):
            self._depth += 1
            if self._depth > DEEPEST:
                raise QueryError(f"at most {DEEPEST} parentheses within one another", self._tokens.at - 1)
            condition = self._either()
            self._depth -= 1
            self._tokens.expect(")", "`)` is missing here")
            return condition
        self._tokens.skip()
        name = self._tokens.take(_NAME, "a stage is missing here, such as json, or a label with a condition")
        if not self._has_labels and not name.startswith("__"):
            self._check_label(name, self._tokens.at - len(name), "; those in lines are read by `| json` or `| logfmt`")
        self._tokens.skip()
        op = self._tokens.take(_COMPARING, f"after the label {name} comes one of = != =~ !~ == > >= < <=")
        return self._read_comparison(name, op)

    def _read_comparison(self, name: str, op: str) -> Condition:
        if op in ("=", "!=") and (addresses := self._addresses()) is not None:
            return LabelMatcher(name, op, "", addresses=addresses)
        value = self._tokens.peek(_VALUE)
        if value and "~" not in op:
            read = reader_of(value)
            if read is None:
                raise QueryError("this is no number, duration (1.5s) or size (20MB); quote a text", self._tokens.at)
            self._tokens.take(_VALUE, "")
            return Comparison(name, op, read(value), read)
        if op not in ("=", "!=", "=~", "!~"):
            raise QueryError(f"{op} compares with a number, a duration (1.5s) or a size (20MB)", self._tokens.at)
        quoted = self._tokens.read_quoted()
        return LabelMatcher(name, op, quoted.value, _compile_quoted_expression(quoted) if "~" in op else None)


def _compile_quoted_expression(quoted: Quoted) -> re.Pattern[str]:
    try:
        return compile_expression(quoted.value)
    except ExpressionError as error:
        raise QueryError(str(error), quoted.at + (1 + error.at if quoted.plain else 0)) from None


def _read_quoted_value(quoted: Quoted, read: Callable[[str], Read]) -> Read:
    try:
        return read(quoted.value)
    except ParseError as error:
        raise QueryError(str(error), quoted.at) from None
