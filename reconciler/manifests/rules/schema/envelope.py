"""Rules of the schemas about what every manifest has, and about queries."""

from __future__ import annotations

from reconciler.manifests.rules.registry import Section
from reconciler.model.rule import error_rule

SECTION = Section.MANIFESTS


SCHEMA_RULES = (
    error_rule(
        "resource-name",
        "A name has lower-case letters, digits and hyphens, begins with a letter and does not end with a hyphen; "
        "at most 64 characters.",
        "Names become parts of links, host names and labels, which take nothing else.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "workload-name",
        "A workload's name has at most 49 characters and does not end with -headless; else it is as other names.",
        "The platform adds the GVC's alias and endings of its own, and the whole must still fit a host name.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "domain-name",
        "A domain's name is its full name in lower case: labels parted by dots, at least two of them.",
        "The name is what DNS is asked for and what certificates are made for.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "image-name",
        "The name of an image is NAME:TAG, with NAME in lower case.",
        "An image in the registry is one tag of a repository; without the tag it would be many. "
        "Registries know no name with capital letters.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "user-name",
        "A user is named by an e-mail address, or by letters, digits, dots, hyphens and underscores.",
        "Policies and groups link to users by this name.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "description-length",
        "A description has at most 250 characters.",
        "It is shown in lists; longer text belongs into a comment or a document.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "tag-count",
        "A resource has at most 50 tags, none with an empty key.",
        "Tags are copied to everything that is made of the resource, and clouds limit them as well.",
        "docs/platform/fields.md#tags",
    ),
    error_rule(
        "query-term",
        "A term of a query names exactly one of property, rel and tag, with an operator that exists; a query matches "
        "all, any or none of its terms.",
        "With two names, or none, nobody could say what is compared.",
        "docs/platform/fields.md#queries",
    ),
)
