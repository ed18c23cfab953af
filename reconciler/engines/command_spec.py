"""The spec of a command, for every engine: strict reading, and errors that name the wrong field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from reconciler.engines.volumes import rejection
from reconciler.model.suggest import closest

Form = TypeVar("Form", bound=msgspec.Struct)


def read_spec(name: str, spec: Mapping[str, Any], form: type[Form]) -> Form:
    """Read the spec of the command ``name`` as ``form``. Raises EngineError with the field that does not fit."""
    known = [field.encode_name for field in msgspec.structs.fields(form)]
    for field in spec:
        if field not in known:
            near = closest(field, known)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(known)}"
            raise rejection(f"{name} has no field {field}; {hint}")
    try:
        return msgspec.convert(spec, form)
    except msgspec.ValidationError as error:
        raise rejection(f"the spec of {name} does not fit: {error}") from None
