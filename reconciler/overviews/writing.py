"""Writes overviews as JSON and YAML, in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.overviews.overview import Overview


def make_document(overview: Overview, value: Any) -> Mapping[str, Any]:
    """``value`` as one JSON object."""
    if overview.document is not None:
        return overview.document(value)
    assert overview.listing is not None
    listing = overview.listing
    extras = listing.extras(value) if listing.extras is not None else {}
    return {listing.member: list(map(listing.item, value.rows)), **extras}


def write_json(overview: Overview, value: Any) -> Iterator[str]:
    """``value`` as JSON in parts: of a list of all resources, one for each."""
    from reconciler.render.layout import as_json

    listing = overview.listing
    if listing is None or listing.extras is None:
        yield f"{as_json(make_document(overview, value)).decode()}\n"
        return
    # The documents of 100,000 resources would take a gigabyte at once.
    yield f'{{"{listing.member}": ['
    for number, row in enumerate(value.rows):
        yield ("," if number else "") + "\n" + as_json(listing.item(row)).decode()
    yield "\n]"
    for name, more in listing.extras(value).items():
        yield f', "{name}": {as_json(more).decode()}'
    yield "}\n"


def write_yaml(overview: Overview, value: Any) -> Iterator[str]:
    """The same as ``write_json``, as YAML."""
    from reconciler.documents.writer import render_document

    listing = overview.listing
    if listing is None or listing.extras is None:
        yield render_document(make_document(overview, value))
        return
    is_empty = True
    for row in value.rows:
        yield (f"{listing.member}:\n" if is_empty else "") + render_document([listing.item(row)])
        is_empty = False
    if is_empty:
        yield f"{listing.member}: []\n"
    if extras := listing.extras(value):
        yield render_document(extras)


FORMS = {"json": write_json, "yaml": write_yaml}
"""Form → what writes it."""
