"""The spec of a command, for every engine: strict reading, and errors that name the wrong field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from reconciler.errors import EngineError
from reconciler.model.suggest import find_closest_word
from reconciler.reasons import Reason

Form = TypeVar("Form", bound=msgspec.Struct)
_WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)` - at `\$\.?([^`]+)`")
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "no value",
}


class MistypedSpec(EngineError):
    """The spec of a command has not the form of the command: a person typed it wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason=Reason.INVALID_COMMAND, retry=False)


def read_spec(name: str, spec: Mapping[str, Any], form: type[Form]) -> Form:
    """Read the spec of the command ``name`` as ``form``. Raises MistypedSpec with the field that does not fit."""
    fields = {field.encode_name: field.required for field in msgspec.structs.fields(form)}
    for field in spec:
        if field not in fields:
            near = find_closest_word(field, fields)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(fields)}"
            raise MistypedSpec(f"{name} has no field {field}; {hint}")
    missing = [field for field, required in fields.items() if required and field not in spec]
    if missing:
        raise MistypedSpec(f"{name} needs {' and '.join(missing)}; its fields are {', '.join(fields)}")
    try:
        return msgspec.convert(spec, form)
    except msgspec.ValidationError as error:
        raise MistypedSpec(_explain_invalid(name, str(error))) from None


def _explain_invalid(name: str, error: str) -> str:
    """The words of the library for a value that does not fit, in ours where it is of a wrong type."""
    wrong = _WRONG_TYPE.fullmatch(error)
    if wrong is None:
        return f"the spec of {name} does not fit: {error}"
    wanted = " or ".join(_TYPES.get(word, word) for word in wrong[1].split(" | "))
    return f"{wrong[3]} of {name}: expected {wanted}, found {_TYPES.get(wrong[2], wrong[2])}"
