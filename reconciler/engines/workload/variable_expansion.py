"""Replaces ``$(NAME)`` in a value with the value of NAME (docs/platform/workload.md#variables-within-variables)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from reconciler.errors import EngineError
from reconciler.reasons import Reason

MAX_VARIABLE_BYTES = 1 << 17
"""The size in bytes of one variable with its name from which on Linux refuses to start a program."""

_EMBEDDED = re.compile(r"\$\$|\$\(([^)]*)\)")


def expand_variables(written: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """The values of ``written`` with references replaced by values from themselves and from ``fixed``.

    ``$$`` is a dollar sign, so ``$$(NAME)`` stays ``$(NAME)``. Unknown names stay as written, and so do circular
    references. Inserted values are not expanded again. Raises EngineError, reason VariableTooLong, for a value that is
    too long to start a program.
    """
    waits = {name: _find_referenced_names(value, written) for name, value in written.items()}
    wanted_by: dict[str, list[str]] = defaultdict(list)
    for name, others in waits.items():
        for other in others:
            wanted_by[other].append(name)
    values = {name: value for name, value in fixed.items() if name not in written}
    ready = [name for name, others in waits.items() if not others]
    while ready:
        name = ready.pop()
        values[name] = _expand_value(name, written[name], values)
        for other in wanted_by[name]:
            waits[other].discard(name)
            if not waits[other]:
                ready.append(other)
    circular = {name: _expand_value(name, written[name], values) for name in written if name not in values}
    return {name: values[name] if name in values else circular[name] for name in written}


def expand_arguments(texts: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """A command or arguments with the variables of the container inserted, as in Kubernetes.

    ``$$`` is a dollar sign here too, and unknown names stay as written. Raises EngineError, reason ArgumentTooLong, for
    an argument that is too long to start a program.
    """
    return tuple(_expand_argument(text, env) for text in texts)


def _expand_argument(text: str, env: Mapping[str, str]) -> str:
    try:
        return _expand_value("", text, env)
    except EngineError:
        message = f"an argument would be longer than {MAX_VARIABLE_BYTES >> 10} KiB with all that it embeds"
        raise EngineError(message, reason=Reason.ARGUMENT_TOO_LONG, retry=False) from None


def find_embedded_names(value: str) -> set[str]:
    """The names that ``value`` refers to as ``$(NAME)``."""
    return set(_EMBEDDED.findall(value)) - {""} if "$(" in value else set()


def _find_referenced_names(value: str, written: Mapping[str, str]) -> set[str]:
    """The names in ``written`` that a value refers to."""
    return {name for name in find_embedded_names(value) if name in written}


def _expand_value(name: str, value: str, values: Mapping[str, str]) -> str:
    if "$" not in value:
        return value
    parts: list[str] = []
    size, end = len(name), 0
    for match in _EMBEDDED.finditer(value):
        text = "$" if match[1] is None else values.get(match[1], match[0])
        parts += (value[end : match.start()], text)
        end = match.end()
        size += len(parts[-2]) + len(text)
        if size >= MAX_VARIABLE_BYTES:
            message = f"the variable {name} would be longer than {MAX_VARIABLE_BYTES >> 10} KiB with all that it embeds"
            raise EngineError(message, reason=Reason.VARIABLE_TOO_LONG, retry=False)
    return "".join((*parts, value[end:]))
