"""The schema files themselves: complete, explained, and the same in every reader's eyes."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import jsonschema_rs
import pytest

from reconciler.documents.schema.dialect import SchemaValidator
from reconciler.documents.schema.loader import KIND_NAMES, SCHEMA_NAMES, find_shipped_path, load_schema, schema_path
from reconciler.documents.schema.messages import PHRASED
from reconciler.manifests.rules import load_rules, schema_rules
from reconciler.model.key import GVC_SCOPED, KINDS
from reconciler.planning.plan import ChangeClass
from reconciler.rulebook import load_rulebook
from tests.documents.tree import fields, full, met, nodes

CONDITIONAL = {"if", "then", "else", "allOf", "properties", "items", "propertyNames", "const"}
NOTES = {"$schema", "title", "description", "default", "examples", "deprecated", "readOnly"}
ANNOTATIONS = {
    "x-link",
    "x-depends",
    "x-uri",
    "x-image",
    "x-set",
    "x-named",
    "x-peers",
    "x-sorted",
    "x-change",
    "x-host",
    "x-secret",
    "x-duration",
    "x-integer-text",
    "x-pattern-words",
    "x-rule",
    "x-hint",
    "x-meant",
    "x-unmodelled",
    "x-unmodelled-values",
    "x-inert",
    "x-since",
}
PASSED_ON = {
    "gvc": "/spec/sidecar/envoy",
    "workload": "/spec/sidecar/envoy",
    "mk8s": "/spec/addOns/byok/config",
    "status": "/locations/items()",
}
"""Mappings whose fields belong to other schemas."""
OTHERS = {"common", "catalog", "manifest"}
"""Files beside the schemas of kinds, settings and status files."""
SERVER_OWNED = {"id", "version", "created", "lastModified", "links", "status", "alias", "origin", "keys"}

every_schema = pytest.mark.parametrize("name", SCHEMA_NAMES)


def test_every_schema_file_is_named_and_no_other_lies_there() -> None:
    assert sorted(path.stem for path in find_shipped_path("schemas").glob("*.json")) == sorted([*SCHEMA_NAMES, *OTHERS])


def test_a_schema_that_is_not_shipped_is_reported_as_missing() -> None:
    with pytest.raises(FileNotFoundError, match=r"schemas/nonsense\.json is missing"):
        load_schema("nonsense")


@every_schema
def test_a_schema_is_one(name: str) -> None:
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema_rs.meta.is_valid(schema)
    assert "$ref" not in json.dumps(schema)


@every_schema
def test_every_field_has_a_title_and_a_description(name: str) -> None:
    schema = load_schema(name)
    assert schema["title"]
    assert schema["description"]
    bare = [place for place, field in fields(schema) if not (field.get("title") and field.get("description"))]
    assert bare == []


@every_schema
def test_every_field_that_holds_no_fields_of_its_own_has_an_example(name: str) -> None:
    bare = [place for place, field in fields(load_schema(name)) if "examples" not in field and not _holds_fields(field)]
    assert bare == []


def _holds_fields(field: dict[str, Any]) -> bool:
    """Whether examples stand further in: in a mapping of fields, or in entries that are such."""
    inner = (field.get("items"), field.get("additionalProperties"))
    return (
        "properties" in field
        or "x-secret" in field
        or any(isinstance(each, dict) and "properties" in each for each in inner)
    )


@every_schema
def test_every_default_and_every_example_fits_its_own_field(name: str) -> None:
    for place, field in fields(load_schema(name)):
        for value in [*([field["default"]] if "default" in field else []), *field.get("examples", [])]:
            assert jsonschema_rs.Draft202012Validator(field).is_valid(value), (place, value)


@every_schema
def test_every_keyword_has_words_or_is_only_a_note(name: str) -> None:
    known = PHRASED | CONDITIONAL | NOTES | ANNOTATIONS
    assert {word for _, node in nodes(load_schema(name)) for word in node} <= known


@every_schema
def test_what_has_no_effect_here_names_the_month_since_when_it_is_public(name: str) -> None:
    for pointer, node in nodes(load_schema(name)):
        is_unmodelled = "x-unmodelled" in node or "x-unmodelled-values" in node
        assert ("x-since" in node) == is_unmodelled, pointer
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", node.get("x-since", "2025-01")), pointer


@every_schema
def test_no_schema_uses_what_the_two_validators_read_differently(name: str) -> None:
    """The validator that words faults passes over the one and fails on the other, so a refusal would have no words."""
    for place, node in nodes(load_schema(name)):
        assert "patternProperties" not in node, place
        assert not re.search(r"\\p\{", node.get("pattern", ""), re.I), place


@every_schema
def test_either_ors_and_refusals_have_the_shapes_that_can_be_worded(name: str) -> None:
    for pointer, node in nodes(load_schema(name)):
        for keyword in ("oneOf", "anyOf"):
            if "not()" not in pointer:
                assert all(set(branch) == {"required"} for branch in node.get(keyword, ())), pointer
        if "not" in node:
            assert set(node["not"]) <= {"required", "x-rule"} or "description" in node["not"], pointer


@every_schema
def test_patterns_mean_the_same_in_every_dialect(name: str) -> None:
    for pointer, node in nodes(load_schema(name)):
        pattern = node.get("pattern", "")
        assert not re.search(r"\\[a-zA-Z]|\(\?", pattern), (
            f"{pointer}: classes and groups that dialects read differently"
        )
        assert "$" not in pattern.replace(r"\$", "")[:-1], f"{pointer}: an end that is not at the end"
        assert not pattern or "x-pattern-words" in node or "not()" in pointer, f"{pointer}: has no words"


@every_schema
def test_a_mapping_takes_no_fields_that_are_not_listed(name: str) -> None:
    for place, node in nodes(load_schema(name)):
        if node.get("type") == "object" and not _is_opaque(node):
            assert ("additionalProperties" in node) != (place == PASSED_ON.get(name)), place


def _is_opaque(node: dict[str, Any]) -> bool:
    """Whether a mapping belongs to a field that has no effect here, whatever is in it."""
    return "x-unmodelled" in node or ("properties" not in node and node.get("examples") == [{}])


@every_schema
def test_annotations_have_values_that_generic_code_can_read(name: str) -> None:
    for pointer, node in nodes(load_schema(name)):
        assert set(node.get("x-link", ())) <= {*KINDS, "*"}, pointer
        assert node.get("x-change", "in-place") in set(ChangeClass), pointer
        if "x-named" in node:
            item = node["items"]
            assert node["x-named"] in item["required"], pointer
        assert set(node.get("x-peers", ())) <= {*KINDS}, pointer
        assert not node.get("x-sorted") or node["items"]["type"] == "object", pointer
        assert not node.get("x-set") or node["items"]["type"] in ("string", "integer"), pointer


@every_schema
def test_keywords_beside_a_reference_change_no_verdict(name: str) -> None:
    for path in (schema_path(name), find_shipped_path("schemas/common.json")):
        for reference in _references(json.loads(path.read_bytes())):
            assert set(reference) - {"$ref"} <= {"title", "description", "default", "examples", "x-rule", "x-change"}


@every_schema
def test_every_field_is_shown_by_a_valid_example(name: str) -> None:
    schema = load_schema(name)
    check = jsonschema_rs.Draft202012Validator(schema)
    documents = full(name)
    for document in documents:
        assert list(SchemaValidator(schema).iter_errors(document)) == []
        assert check.is_valid(document)
    seen = {place for document in documents for place in met(schema, document)}
    assert {place for place, _ in fields(schema)} - seen == set()


@every_schema
def test_a_schema_needs_no_other_file_in_either_validator(name: str) -> None:
    schema = json.loads(schema_path(name).read_bytes())
    assert {reference["$ref"][:8] for reference in _references(schema)} <= {"#/$defs/"}
    slow, quick = jsonschema.Draft202012Validator(schema), jsonschema_rs.Draft202012Validator(schema)
    for document in full(name):
        assert slow.is_valid(document)
        assert quick.is_valid(document)
        assert not slow.is_valid({**document, "nonsense": 1})
        assert not quick.is_valid({**document, "nonsense": 1})


def test_each_schema_has_an_id_of_its_own() -> None:
    names = [*SCHEMA_NAMES, "common", "manifest"]
    ids = {name: json.loads(schema_path(name).read_bytes())["$id"] for name in names}
    assert ids == {name: f"urn:reconciler:schema:{name}" for name in names}


def test_the_schema_of_all_manifests_holds_each_to_its_kind() -> None:
    check = jsonschema_rs.Draft202012Validator(json.loads(schema_path("manifest").read_bytes()))
    for name in KIND_NAMES:
        for document in full(name):
            assert check.is_valid(document)
            assert not check.is_valid({**document, "nonsense": 1}), name
    assert not check.is_valid({"name": "web"})
    assert not check.is_valid({"kind": "Deployment", "name": "web"})


def test_the_catalogue_maps_every_kind_and_the_settings() -> None:
    catalogue = json.loads(schema_path("catalog").read_bytes())
    assert catalogue["$schema"] == "https://json.schemastore.org/schema-catalog.json"
    listed = {entry["url"].removesuffix(".json"): entry for entry in catalogue["schemas"]}
    assert set(listed) == {*KIND_NAMES, "manifest", "settings", "repository"}
    for name, entry in listed.items():
        assert set(entry) == {"name", "description", "fileMatch", "url"}
        assert entry["description"] == json.loads(schema_path(name).read_bytes())["description"]
        assert entry["fileMatch"]


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_rule_that_a_place_names_is_one_of_the_rulebook(name: str) -> None:
    named = {node["x-rule"]: place for place, node in nodes(load_schema(name)) if "x-rule" in node}
    assert {rule: place for rule, place in named.items() if rule not in load_rulebook()} == {}


def test_every_rule_of_the_schemas_is_named_by_a_place() -> None:
    named = {node["x-rule"] for name in KIND_NAMES for _, node in nodes(load_schema(name)) if "x-rule" in node}
    assert {rule.id for rule in schema_rules()} - named == set()


def test_a_rule_belongs_to_the_schemas_or_to_a_generator() -> None:
    assert {rule.id for rule in schema_rules()} & load_rules().keys() == set()


def test_there_is_a_schema_for_every_kind() -> None:
    assert set(KIND_NAMES) == set(KINDS)


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_kind_takes_what_users_own_and_nothing_that_the_platform_owns(name: str) -> None:
    schema = load_schema(name)
    assert {"kind", "name", "description", "tags"} <= set(schema["properties"])
    assert not SERVER_OWNED & set(schema["properties"])
    assert ("gvc" in schema["properties"]) == (KINDS[name] in GVC_SCOPED)
    assert schema["required"][:2] == ["kind", "name"]


def _references(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [reference for item in node for reference in _references(item)]
    if not isinstance(node, dict):
        return []
    own = [node] if "$ref" in node else []
    return own + [reference for child in node.values() for reference in _references(child)]
