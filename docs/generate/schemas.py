"""docs/schemas.md: the annotations in the schemas, and the use of schemas in editors."""

from __future__ import annotations

from docs.generate.tables import table
from reconciler.documents.schema.loader import SCHEMA_NAMES, load_schema

MEANINGS = {
    "x-change": "The class of a change of the field: in-place, scale-only, new-version or replace. It applies to all "
    "fields below without their own class.",
    "x-depends": "`false`: the link does not make the resource wait for its target.",
    "x-duration": "A duration such as `30s`.",
    "x-hint": "The suggestion for a wrong value, instead of a guess.",
    "x-image": "An image: in a public registry, or a link to one of the org.",
    "x-integer-text": "A whole number or a text; digits in a text mean the number.",
    "x-link": "A link, with the allowed kinds of its target; `*` means any.",
    "x-meant": "Fields or values of other tools, with what is written here in their place.",
    "x-named": "The field that identifies the entries of this list; a plan shows which entry changed.",
    "x-pattern-words": "The pattern in words, for messages.",
    "x-peers": "Kinds of targets for which the link acts as with `x-depends: false`.",
    "x-rule": "The rule that a wrong value breaks; without it, one of the rules for all fields.",
    "x-host": "The text may be on the reconciler's host: `{file: PATH}` or `{credential: NAME}`.",
    "x-secret": "The value is never shown.",
    "x-unmodelled": "The field has no effect here; the text says what the platform does with it.",
    "x-unmodelled-values": "Patterns of values without effect here; each text says what the platform does.",
    "x-since": "The month in which public tools of the platform first have what has no effect here.",
    "x-inert": "Values of a field that mean the same as if it were left out.",
    "x-set": "The order of this list has no meaning.",
    "x-sorted": "Like `x-set`, for entries that are mappings.",
    "x-uri": "A text that may be a link to a secret or volume set, such as `platform://secret/db.password`; "
    "with `mount`, it must be the address of a volume.",
}
"""Annotation → its meaning."""

HEAD = """\
# Schemas

Every kind, the settings and the status files have a [JSON Schema](https://json-schema.org/draft/2020-12/schema) in
`schemas/`. The program uses the same files for its checks and messages. Schemas cannot express checks between
resources, such as links and cycles; `reconciler validate` makes these.

## In an editor

Editors with the YAML language server (VS Code, Neovim, Emacs, Helix and others) complete fields, show their meaning
and mark mistakes if a document names its schema in a comment:

    # yaml-language-server: $schema=../.schemas/manifest.json

`manifest.json` applies the schema of its `kind` to each document. A file with several documents needs the line in each.
`reconciler init` puts the schemas into `.schemas/`, a directory that is not read for manifests, and the line into its
manifests. For your own repository, copy `manifest.json` there: no schema needs another file. Or map it in your editor's
settings:

    {"yaml.schemas": {".schemas/manifest.json": ["**/*.yaml", "**/*.yml"]}}

A manifest in JSON names no schema, so map it by its name:

    {"json.schemas": [{"url": "./.schemas/manifest.json", "fileMatch": ["manifests/**/*.json"]}]}

`catalog.json` has the form of the JSON Schema Store's catalogue. It maps files by name, such as
`orders.volumeset.yaml`, to the schema of their kind.

## In other tools

Each file is complete, and its `$id` is a name (`urn:reconciler:schema:workload`) that nothing is downloaded from:

    check-jsonschema --schemafile schemas/manifest.json manifests/shop/web.yaml manifests/shop/api.yaml
    ajv validate --spec=draft2020 --strict=false -s schemas/workload.json -d manifests/shop/web.yaml

Neither reads a file with several documents. ajv takes the schemas in its strict mode too if it is told the names of the
[annotations](#annotations), by `addVocabulary`. Such a check sees one document alone; `reconciler validate` also sees
links, duplicates, GVCs and rules.

"""


def page() -> str:
    """The text of the page."""
    files = [(f"`{name}.json`", load_schema(name)["description"]) for name in SCHEMA_NAMES]
    files += [
        ("`manifest.json`", "A manifest of any kind, checked with the schema of its kind."),
        ("`common.json`", "Parts that several schemas share; each has copies of those that it refers to."),
        ("`catalog.json`", "The schema of each file, for editors."),
    ]
    text = HEAD + "## Files\n\n" + table(("File", "Content"), files)
    text += "\n## Annotations\n\nKeywords that begin with `x-` are ours; validators ignore them.\n\n"
    return text + table(("Annotation", "Meaning"), ((f"`{name}`", meaning) for name, meaning in MEANINGS.items()))
