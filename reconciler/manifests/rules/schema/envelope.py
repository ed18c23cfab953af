"""Rules of the schemas about the fields of every manifest, and about queries."""

from __future__ import annotations

from reconciler.manifests.rules.registry import Section
from reconciler.model.rule import error_rule

SECTION = Section.MANIFESTS


SCHEMA_RULES = (
    error_rule(
        "resource-name",
        "A name has lower-case letters, digits and hyphens, begins with a letter and does not end with a hyphen; "
        "at most 64 characters.",
        "Names become parts of links, host names and labels, which allow nothing else.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "workload-name",
        "A workload's name has at most 49 characters and does not end with -headless; otherwise it is like others.",
        "The platform adds the GVC's alias and endings, and the result must still be a valid host name.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "domain-name",
        "A domain's name is its full name in lower case: at least two labels, separated by dots.",
        "DNS resolves this name, and certificates are issued for it.",
        "docs/platform/fields.md#names",
    ),
    error_rule(
        "image-name",
        "The name of an image is NAME:TAG, with NAME in lower case.",
        "An image in the registry is one tag of a repository; without the tag it would be many. Registries have no "
        "names with capital letters.",
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
        "It is shown in lists; longer text belongs in a comment or a document.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "tag-count",
        "A resource has at most 50 tags, none with an empty key.",
        "Tags are copied to everything that the platform makes for the resource, and clouds limit them too.",
        "docs/platform/fields.md#tags",
    ),
    error_rule(
        "query-term",
        "A term of a query names exactly one of property, rel and tag, with an operator that exists; a query matches "
        "all, any or none of its terms.",
        "With two names, or none, it would be unclear what is compared.",
        "docs/platform/fields.md#queries",
    ),
)
