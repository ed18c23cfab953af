"""The spec of a command, for every engine: strict reading, and errors that name the wrong field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from reconciler.engines.volumes import make_rejection
from reconciler.model.suggest import find_closest_word

Form = TypeVar("Form", bound=msgspec.Struct)


def read_spec(name: str, spec: Mapping[str, Any], form: type[Form]) -> Form:
    """Read the spec of the command ``name`` as ``form``. Raises EngineError with the field that does not fit."""
    fields = [field.encode_name for field in msgspec.structs.fields(form)]
    for field in spec:
        if field not in fields:
            near = find_closest_word(field, fields)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(fields)}"
            raise make_rejection(f"{name} has no field {field}; {hint}")
    try:
        return msgspec.convert(spec, form)
    except msgspec.ValidationError as error:
        raise make_rejection(f"the spec of {name} does not fit: {error}") from None
