"""A revision (one commit of a source) and the changes between two of them."""

from __future__ import annotations

import re

import msgspec

SHORT = 12
"""Characters of a commit or digest that people see."""
YAML_SUFFIXES = (".yaml", ".yml")
JSON_SUFFIX = ".json"
SUFFIXES = (*YAML_SUFFIXES, JSON_SUFFIX)
"""How the names of files end that can be manifests. Of those in JSON, the content decides."""
COMMIT_OR_PARENT = re.compile(r"[0-9a-f]{7,64}(~1)?")
"""A commit or its parent: what names no branch, which only who may view the org knows of."""


class Revision(msgspec.Struct, frozen=True):
    """One commit of a source; ``tree`` is the id of the tree at the source's path, so equal trees mean equal input."""

    source: str
    ref: str
    commit: str
    tree: str
    author: str = ""
    subject: str = ""
    time: int = 0

    def __str__(self) -> str:
        return revision_text(self.ref, self.commit)


def revision_text(ref: str, commit: str) -> str:
    """``main@sha1:4f2a…``, or ``sha1:4f2a…`` if the source names a commit instead of a branch or tag."""
    return f"sha1:{commit}" if ref == commit else f"{ref}@sha1:{commit}"


def shorten_id(text: str) -> str:
    """The first characters of a commit or a digest, as people see it; commands take any that no other begins with."""
    return text[:SHORT]


def shorten_revision(text: str) -> str:
    """``main@sha1:4f2a…`` as people see it: its commit as ``shorten_id`` has it."""
    before, mark, commit = text.rpartition("sha1:")
    return f"{before}{mark}{shorten_id(commit)}" if mark else text


def explain_expression(expression: str, commit: str) -> str:
    """``HEAD~1 (1a2b3c4d5e6f)``, or ``1a2b3c4d5e6f`` where ``expression`` is the commit or begins it."""
    short = shorten_id(commit)
    return short if expression and commit.startswith(expression) else f"{expression} ({short})"


class FileChange(msgspec.Struct, frozen=True, order=True, gc=False):
    """One manifest file that differs between two trees: blobs before and after, empty if there is none.

    They are named by ``blob_name``.
    """

    path: str
    before: str
    after: str


def blob_name(path: str, id_: str) -> str:
    """The name of the blob ``id_`` as the file at ``path``: the same bytes are another manifest in a file of JSON."""
    return f"{id_}{JSON_SUFFIX}" if path.endswith(JSON_SUFFIX) else id_


def is_json(name: str) -> bool:
    """Whether the file, or the blob, ``name`` is read as JSON."""
    return name.endswith(JSON_SUFFIX)


def blob_id(name: str) -> str:
    """The id of the blob ``name``."""
    return name.removesuffix(JSON_SUFFIX)
