"""docs/schemas.md: what the annotations in the schemas mean, and how editors use them."""

from __future__ import annotations

from docs.generate.tables import table
from reconciler.documents.schema.loader import SCHEMA_NAMES, load_schema

MEANINGS = {
    "x-change": "What a change of the field costs: in-place, scale-only, new-version or replace. Holds for everything "
    "below, until a field says otherwise.",
    "x-depends": "`false`: the link does not make the resource wait for what it leads to.",
    "x-duration": "A text such as `30s`, taken as a time.",
    "x-hint": "What to do about a value that does not fit, in place of a guess.",
    "x-image": "An image: in a public registry, or a link to one of the org.",
    "x-integer-text": "A whole number or a text; a text of digits means the number.",
    "x-link": "A link, with the kinds that it may lead to; `*` stands for any.",
    "x-named": "The entries of this list are told apart by the field named here; a plan shows which one changed.",
    "x-pattern-words": "The pattern in words, for messages.",
    "x-peers": "Kinds among those that the link may lead to, for which it is as with `x-depends: false`.",
    "x-rule": "The rule that a value breaks which does not fit here; without it one of the rules for all fields.",
    "x-host": "Instead of the text stands `{file: PATH}` or `{credential: NAME}` where it is on the reconciler's host.",
    "x-secret": "Nothing of the value is ever shown.",
    "x-set": "The order of this list means nothing.",
    "x-sorted": "As `x-set`, for entries that are mappings.",
    "x-uri": "A text that may be a link to a secret or volume set, such as `platform://secret/db.password`; "
    "`mount`: one that must be the address of something that can be mounted.",
}
"""Annotation → what it means."""

HEAD = """\
# Schemas

Every kind, the settings and the status files have a [JSON Schema](https://json-schema.org/draft/2020-12/schema) in
`schemas/`. The program checks with these very files, and its messages are made from them. What only several
resources together can break, links and cycles for example, no schema can say: `reconciler validate` does.

## In an editor

Editors with the YAML language server (VS Code, Neovim, Emacs, Helix and others) complete fields, show their meaning
and mark mistakes where a document names its schema in a comment:

    # yaml-language-server: $schema=../.schemas/manifest.json

`manifest.json` holds each document to the schema of its `kind`. A file with several documents needs the line in each.
`reconciler init` brings the schemas along in `.schemas/`, a directory that is not read for manifests, and its manifests
have the line. For a repository of your own copy `schemas/` as a whole, since the files refer to each other; or let
your editor's settings map it:

    {"yaml.schemas": {".schemas/manifest.json": ["**/*.yaml", "**/*.yml"]}}

`catalog.json` has the form of the JSON Schema Store's catalogue. It maps files by their names, such as
`orders.volumeset.yaml`, to the schema of their kind.

"""


def page() -> str:
    """The text of the page."""
    files = [(f"`{name}.json`", load_schema(name)["description"]) for name in SCHEMA_NAMES]
    files += [
        ("`manifest.json`", "A manifest of any kind, held to the schema of its kind."),
        ("`common.json`", "Parts that several schemas refer to."),
        ("`catalog.json`", "Which files have which schema, for editors."),
    ]
    text = HEAD + "## Files\n\n" + table(("File", "What it describes"), files)
    text += "\n## Annotations\n\nKeywords that begin with `x-` are ours, and validators pass over them.\n\n"
    return text + table(("Annotation", "Meaning"), ((f"`{name}`", says) for name, says in MEANINGS.items()))
