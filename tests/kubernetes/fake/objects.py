"""The form in which the server stores an object: what Go's types make of its JSON."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from tests.kubernetes.fake.types import Field, Node, element_node, fields_of, parse_node

NULL: Any = object()
"""A list or a map that is written as null where it is absent."""
ZERO = {
    "string": "",
    "int": 0,
    "float": 0,
    "bool": False,
    "Quantity": "0",
    "IntOrString": 0,
    "bytes": None,
    "any": None,
}
_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))((?:[eE][+-]?\d+)|[numkMGTPE]|[KMGTPE]i)?$")
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def is_quantity(value: Any) -> bool:
    """Whether the server can read ``value`` as a quantity."""
    return isinstance(value, int | float) or (isinstance(value, str) and bool(_QUANTITY.match(value)))


def quantity_value(value: Any) -> Decimal:
    """The number that a quantity is."""
    match = _QUANTITY.match(str(value))
    if not match:
        return Decimal(0)
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in BINARY:
        return number * 2 ** BINARY[suffix]
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return number.scaleb(int(suffix[1:]))
    return number.scaleb(DECIMAL[suffix])


def canonical_quantity(value: Any) -> str:
    """``1000m`` → ``1``, ``1024Mi`` → ``1Gi``: no fraction, the largest suffix."""
    text = str(value)
    match = _QUANTITY.match(text)
    if not match:
        return text
    number, suffix = quantity_value(text), match[2] or ""
    if number == 0:
        return "0"
    if suffix in BINARY:
        return _binary_text(number)
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return _exponent_text(number)
    return _decimal_text(number)


def _binary_text(number: Decimal) -> str:
    if number != number.to_integral_value():
        return _decimal_text(number)
    for suffix, power in reversed(BINARY.items()):
        if number % 2**power == 0:
            return f"{int(number) // 2**power}{suffix}"
    return str(int(number))


def _decimal_text(number: Decimal) -> str:
    for suffix, power in reversed(DECIMAL.items()):
        scaled = number.scaleb(-power)
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return f"{int(number.scaleb(9).to_integral_value(rounding='ROUND_UP'))}n"


def _exponent_text(number: Decimal) -> str:
    for power in (18, 15, 12, 9, 6, 3):
        scaled = number.scaleb(-power)
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}e{power}"
    return str(int(number))


def normal_form(node: Node, value: Any) -> Any:
    """``value`` after it was read into its type and written again."""
    if node.form == "struct" and "*" not in fields_of(node.name):
        return _normal_struct(node, value if isinstance(value, dict) else {})
    if node.form == "struct":
        metadata = _normal_struct(parse_node("meta/v1.ObjectMeta"), value.get("metadata") or {})
        return {key: entry for key, entry in value.items() if entry is not None} | {"metadata": metadata}
    if node.form == "list":
        return [normal_form(element_node(node), item) for item in value]
    if node.form == "map":
        return {key: normal_form(parse_node(node.element), member) for key, member in value.items()}
    if node.name == "Quantity":
        return canonical_quantity(value)
    if node.name == "float" and isinstance(value, float) and value == int(value):
        return int(value)
    return value


def _normal_struct(node: Node, value: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for name, field in fields_of(node.name).items():
        entry = value.get(name)
        if entry is None:
            entry = _absent_value(field)
            if entry is None:
                continue
            entry = None if entry is NULL else entry
        else:
            entry = normal_form(field.node, entry)
        if field.optional and not field.pointer and entry in ("", 0, [], {}, None):
            continue
        out[name] = entry
    return out


def _absent_value(field: Field) -> Any:
    """What is written for a field that is not there."""
    if field.pointer:
        return None
    if field.default and field.node.form == "scalar":
        return _read_default(field.node.name, field.default)
    if field.optional:
        return None
    if field.node.form == "struct":
        return _normal_struct(field.node, {})
    return ZERO.get(field.node.name) if field.node.form == "scalar" else NULL


def _read_default(name: str, text: str) -> Any:
    if text.startswith("ref("):
        return None
    return int(text) if name == "int" else text == "true" if name == "bool" else text


def unknown_fields(node: Node, value: Any, path: str = "") -> list[str]:
    """Paths of fields that the type does not have."""
    if node.form == "list" and isinstance(value, list):
        parts = enumerate(value)
        return [
            below for number, item in parts for below in unknown_fields(element_node(node), item, f"{path}[{number}]")
        ]
    if not isinstance(value, dict):
        return []
    paths = []
    for key, member in value.items():
        below = f"{path}.{key}" if path else key
        if node.form == "struct":
            field = fields_of(node.name).get(key)
            if field is None and "*" not in fields_of(node.name):
                paths.append(below)
            elif field is not None:
                paths += unknown_fields(field.node, member, below)
        elif node.form == "map":
            paths += unknown_fields(parse_node(node.element), member, below)
    return paths


def unreadable_field(node: Node, value: Any, path: str = "", owner: str = "") -> str:
    """Why Go cannot read ``value`` into its type; empty where it can."""
    if value is None or node.form == "any":
        return ""
    if node.form == "list" and isinstance(value, list):
        return next(filter(None, (unreadable_field(element_node(node), item, path, owner) for item in value)), "")
    if node.form == "map" and isinstance(value, dict):
        inner = parse_node(node.element)
        return next(filter(None, (unreadable_field(inner, item, path, owner) for item in value.values())), "")
    if node.form == "struct" and isinstance(value, dict):
        fields, name = fields_of(node.name), node.name.rpartition(".")[2]
        parts = ((fields[key].node, item, key) for key, item in value.items() if key in fields)
        texts = (unreadable_field(inner, item, f"{path}.{key}".lstrip("."), name) for inner, item, key in parts)
        return next(filter(None, texts), "")
    if node.name == "bytes" and isinstance(value, str):
        return _unreadable_base64(value)
    expected = GO_TYPES.get(node.name, "") if node.form == "scalar" else node.form
    if not expected or (isinstance(value, READABLE[expected]) and (expected == "bool" or not isinstance(value, bool))):
        return ""
    return f"cannot unmarshal {_json_type(value)} into Go struct field {owner}.{path} of type {expected}"


def _unreadable_base64(text: str) -> str:
    good = re.match(r"[A-Za-z0-9+/]*", text)
    at = good.end() if good else 0
    whole = len(text) % 4 == 0 and text[at:] in ("", "=", "==")
    return "" if whole else f"illegal base64 data at input byte {at}"


GO_TYPES = {"string": "string", "int": "int32", "bool": "bool"}
READABLE: dict[str, type[Any]] = {"string": str, "int32": int, "bool": bool, "list": list, "map": dict, "struct": dict}


def _json_type(value: Any) -> str:
    names = {bool: "bool", str: "string", dict: "object", list: "array"}
    return names.get(type(value), "number")
