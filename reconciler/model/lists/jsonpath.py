"""JSONPath as kubectl writes it: templates such as ``{.items[*].name}{"\\n"}`` over JSON values."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from reconciler.model.suggest import find_closest_word

_ACTION = re.compile(r"""\{((?:[^{}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*)\}""")
_NAME = re.compile(r"(?:\\.|[^\s.\[\]{}()=!<>?*,\\\"'])+")
_BRACKET = re.compile(r"""\[((?:[^\[\]"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\[[^\[\]]*\])*)\]""")
_STRING = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)')\s*""")
_SLICE = re.compile(r"(-?\d{1,9})?:(-?\d{1,9})?(?::(-?\d{1,9}))?")
_NUMBER = re.compile(r"-?\d{1,9}")
# In each of them, one character decides what follows: a search that fails looks at every character once.
_FILTERED = re.compile(r"""@((?:[^=!<>"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*)""")
_COMPARISON = re.compile("==|!=|<=|>=|<|>")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MOST_LENGTH = 1000
"""The most characters of a template or path: anybody who may read can send one to the API."""
FORMS = """.name, ['name'], [0], [-1], [0:2], [*], .*, ..name, [?(@.name=="x")], {range …}{end}, {"text"}"""
"""What is supported, for messages."""


class _Step(NamedTuple):
    """A step of a path: ``select`` gives the values below a value; ``name`` is the member that it looks for, or ""."""

    text: str
    select: Callable[[Any], Iterable[Any]]
    name: str = ""


class JsonPath(NamedTuple):
    """A path such as ``.items[*].name``."""

    steps: tuple[_Step, ...]

    def find(self, value: Any) -> list[Any]:
        """The values at the path below ``value``."""
        values = [value]
        for step in self.steps:
            values = [below for one in values for below in step.select(one)]
        return values

    def explain_missing(self, value: Any) -> str:
        """Why nothing is found below ``value``: the name that no value has, and those there are; "" without one."""
        values, passed = [value], ""
        for step in self.steps:
            below = [one for value in values for one in step.select(value)]
            if not below and step.name:
                names = sorted({name for one in values if isinstance(one, dict) for name in one})
                there = f"; there are {', '.join(names[:_MOST_NAMES])}" if names else ""
                close = find_closest_word(step.name, names)
                return f"nothing has {passed}{step.text}{f'; did you mean {close}?' if close else there}"
            values, passed = below, passed + step.text
        return ""


_MOST_NAMES = 20
"""The most names that a message lists."""


class _Text(NamedTuple):
    text: str


class _Range(NamedTuple):
    path: JsonPath
    body: tuple[_Part, ...]


_Part = _Text | JsonPath | _Range


class Template(NamedTuple):
    """A parsed template."""

    parts: tuple[_Part, ...]

    def render(self, value: Any) -> str:
        """The template for ``value``; several values of a path are separated by a space."""
        return "".join(_render_parts(self.parts, value))

    def explain_missing(self, value: Any) -> str:
        """Why a path finds nothing in ``value``; "" if each finds something, or could."""
        paths = (part.path if isinstance(part, _Range) else part for part in self.parts)
        return next(filter(None, (path.explain_missing(value) for path in paths if isinstance(path, JsonPath))), "")


def parse_template(text: str) -> Template:
    """The template ``text``; without braces it is one path. Raises ValueError that says what is wrong."""
    _check_length(text)
    if "{" not in text:
        return Template((parse_path(text),))
    parts: list[_Part] = []
    open_ranges: list[tuple[JsonPath, list[_Part]]] = []
    position = 0
    for action in _ACTION.finditer(text):
        _add_text(parts, text[position : action.start()])
        position, words = action.end(), action[1].strip()
        if words == "end":
            if not open_ranges:
                raise ValueError("{end} ends no {range}")
            path, outer = open_ranges.pop()
            outer.append(_Range(path, tuple(parts)))
            parts = outer
        elif words.startswith("range "):
            open_ranges.append((parse_path(words.removeprefix("range ")), parts))
            parts = []
        else:
            parts.append(_parse_action(words))
    _add_text(parts, text[position:])
    if open_ranges:
        raise ValueError("{range} has no {end}")
    return Template(tuple(parts))


def parse_path(text: str) -> JsonPath:
    """The path ``text``, such as ``.items[*].name`` or ``name``. Raises ValueError."""
    _check_length(text)
    words = text.strip()
    words = words[1:-1].strip() if words.startswith("{") and words.endswith("}") else words
    words = words[1:] if words[:1] in ("$", "@") else words
    if words and words[0] not in ".[":
        words = f".{words}"
    steps: list[_Step] = []
    while words not in ("", "."):
        step, length = _parse_step(words)
        steps.append(step)
        words = words[length:]
    return JsonPath(tuple(steps))


def _check_length(text: str) -> None:
    if len(text) > MOST_LENGTH:
        raise ValueError(f"it has {len(text):,} characters; {MOST_LENGTH:,} are the most")


def text_of(value: Any) -> str:
    """``value`` as it is printed: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _add_text(parts: list[_Part], text: str) -> None:
    if "{" in text or "}" in text:
        raise ValueError(f"{text!r} has a brace without its other half")
    if text:
        parts.append(_Text(text))


def _parse_action(words: str) -> _Part:
    if string := _STRING.fullmatch(words):
        return _Text(_unescape_string(string))
    if not words:
        raise ValueError("{} is empty")
    return parse_path(words)


def _parse_step(words: str) -> tuple[_Step, int]:  # the step that ``words`` begin with, and its length
    if words.startswith(".."):
        if name := _NAME.match(words, 2):
            key = _unescape_name(name[0])
            return _Step(name.string[: name.end()], lambda value: _find_below(value, key), key), name.end()
        raise _make_error(words)
    if words.startswith(".*"):
        return _Step(".*", _list_members), 2
    if words.startswith("."):
        if words[1:2] == "[":
            return _parse_bracket(words, 1)
        if name := _NAME.match(words, 1):
            return _make_name_step(name.string[: name.end()], _unescape_name(name[0])), name.end()
        raise _make_error(words)
    return _parse_bracket(words, 0)


def _parse_bracket(words: str, start: int) -> tuple[_Step, int]:
    bracket = _BRACKET.match(words, start)
    if bracket is None:
        raise _make_error(words)
    inner, text = bracket[1].strip(), bracket[0]
    if inner == "*":
        return _Step(text, _list_members), bracket.end()
    if inner.startswith("?(") and inner.endswith(")"):
        return _parse_filter(text, inner[2:-1].strip()), bracket.end()
    if span := _SLICE.fullmatch(inner):
        bounds = slice(*(int(number) if number else None for number in span.groups()))
        if bounds.step == 0:
            raise ValueError(f"the step of {text} is 0")
        return _Step(text, lambda value: value[bounds] if isinstance(value, list) else ()), bracket.end()
    choices = [_parse_index(words, part) for part in _split_union(inner)]
    if len(choices) == 1:
        return _Step(text, choices[0].select, choices[0].name), bracket.end()
    return _Step(text, lambda value: chain.from_iterable(one.select(value) for one in choices)), bracket.end()


def _parse_index(words: str, part: str) -> _Step:
    if string := _STRING.fullmatch(part):
        return _make_name_step(part, _unescape_string(string))
    if not _NUMBER.fullmatch(part.strip()):
        raise _make_error(words)
    index = int(part)
    return _Step(part, lambda value: _pick_index(value, index))


def _split_union(inner: str) -> list[str]:
    """``'a','b'`` or ``0,2`` in parts, at the commas outside of strings."""
    return re.split(r""",(?=(?:[^"']|"[^"]*"|'[^']*')*$)""", inner)


def _make_name_step(text: str, name: str) -> _Step:
    return _Step(text, lambda value: (value[name],) if isinstance(value, dict) and name in value else (), name)


def _parse_filter(text: str, condition: str) -> _Step:
    """The members for which ``condition`` holds: ``@.port>80``, or ``@.name``, which is that there is one."""
    filtered = _FILTERED.match(condition)
    if filtered is None:
        raise _make_error(text)
    path, rest = parse_path(filtered[1]), condition[filtered.end() :]
    if not rest:
        return _Step(text, lambda value: (one for one in _list_members(value) if path.find(one)))
    comparison = _COMPARISON.match(rest)
    if comparison is None:
        raise _make_error(text)
    compare, wanted = _OPERATORS[comparison[0]], _parse_literal(rest[comparison.end() :].strip())

    def matches(value: Any) -> bool:
        return any(_compare_values(compare, found, wanted) for found in path.find(value))

    return _Step(text, lambda value: filter(matches, _list_members(value)))


def _compare_values(compare: Callable[[Any, Any], bool], found: Any, wanted: Any) -> bool:
    try:
        return compare(found, wanted)
    except TypeError:
        return False


def _parse_literal(text: str) -> Any:
    if string := _STRING.fullmatch(text):
        return _unescape_string(string)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise ValueError(f'{text!r} in a filter is no value; write a text as "{text}"') from None


def _pick_index(value: Any, index: int) -> Sequence[Any]:
    return [value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else []


def _list_members(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _find_below(value: Any, name: str) -> Iterator[Any]:
    """The members called ``name`` of ``value`` and of all that is below it."""
    if isinstance(value, dict) and name in value:
        yield value[name]
    for member in _list_members(value):
        yield from _find_below(member, name)


def _render_parts(parts: Iterable[_Part], value: Any) -> Iterator[str]:
    for part in parts:
        match part:
            case _Text():
                yield part.text
            case _Range():
                for one in part.path.find(value):
                    yield from _render_parts(part.body, one)
            case _:
                yield " ".join(map(text_of, part.find(value)))


def _unescape_string(string: re.Match[str]) -> str:
    text = string[1] if string[1] is not None else string[2]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), text)


def _unescape_name(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _make_error(words: str) -> ValueError:
    return ValueError(f"{words!r} is not supported; a path has {FORMS}")
