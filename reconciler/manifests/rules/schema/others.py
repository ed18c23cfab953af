"""Rules of the schemas about what the org owns: policies, identities, secrets, domains, accounts and the rest."""

from __future__ import annotations

from reconciler.manifests.rules.registry import Section
from reconciler.model.rule import error_rule

SECTION = Section.OTHERS


SCHEMA_RULES = (
    error_rule(
        "policy-target",
        "A policy is about one kind, and about all its resources, at most 200 listed ones, or those of a query: "
        "exactly one of target, targetLinks and targetQuery.",
        "Permissions on nothing, or on two different sets at once, would hide who may do what.",
        "docs/platform/fields.md#policy",
    ),
    error_rule(
        "policy-principal",
        "A principal is a user, a group, a service account, or an identity with its GVC.",
        "A policy belongs to no GVC, so an identity's name alone says nothing; other kinds cannot act.",
        "docs/platform/fields.md#policy",
    ),
    error_rule(
        "policy-bindings",
        "A policy has at most 50 bindings, each with at least one permission and 1 to 200 principals.",
        "A binding without permissions or principals grants nothing to nobody.",
        "docs/platform/fields.md#policy",
    ),
    error_rule(
        "identity-aws",
        "Access to AWS names either policies, of at most 69 characters each, or one role.",
        "A role that exists brings its own policies; both together contradict each other.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "identity-gcp",
        "Access to GCP names either bindings, each with at least one role, or one service account.",
        "A service account that exists brings its own roles; both together contradict each other. A binding without a "
        "role opens nothing.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "identity-azure",
        "A role assignment of Azure names a scope and at least one role.",
        "Without either it opens nothing.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "network-resource",
        "An identity has at most 50 network resources and 50 native ones. One behind an agent has 1 to 5 addresses or "
        "a host name, and 1 to 10 ports; a native one a host name, ports, and PrivateLink or Service Connect.",
        "A workload reaches it by this description alone: two ways could lead to different hosts.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "secret-type",
        "A secret has one of the types that the platform knows.",
        "The type decides what stands in data, how it is mounted and where it can be used.",
        "docs/platform/fields.md#secret",
    ),
    error_rule(
        "secret-shape",
        "The data of a secret is written as its type asks: an encoding is plain or base64, JSON texts are not empty.",
        "Who uses the secret would get something that cannot be read.",
        "docs/platform/fields.md#secret",
    ),
    error_rule(
        "secret-key-name",
        "A key of a dictionary has letters, digits, hyphens, dots and underscores.",
        "Keys become names of files and parts of links.",
        "docs/platform/fields.md#secret",
    ),
    error_rule(
        "ecr-repos",
        "An ecr secret opens 1 to 20 repositories.",
        "Without one it opens nothing; more the platform does not sign in to.",
        "docs/platform/fields.md#secret",
    ),
    error_rule(
        "group-member",
        "A group lists at most 200 members, users and service accounts.",
        "Other kinds cannot be members, and larger groups are better found by a query.",
        "docs/platform/fields.md#group",
    ),
    error_rule(
        "domain-accept",
        "A domain takes requests for all hosts or for all subdomains, not both.",
        "All hosts include the subdomains; which certificate is shown would be left open.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "domain-port",
        "A domain has at most 10 ports, numbered 1 to 65535, which speak http2, http or tcp.",
        "The load balancer opens no others.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "route-count",
        "A port of a domain has at most 150 routes.",
        "Routes are tried one after the other for each request.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "route-match",
        "A route takes paths by exactly one of prefix and regex.",
        "With both, or neither, nobody could say which requests it takes.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "route-host",
        "A route takes hosts by hostPrefix or hostRegex, not both.",
        "With both nobody could say which requests it takes.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "cors-origin",
        "An origin is given by exactly one of exact and regex.",
        "Whether a browser lets a script through must not depend on which of two is read first.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "cors-age",
        "The age of a CORS answer is a time such as 24h.",
        "A bare number has no unit, and browsers would ask before each request.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "domain-tls",
        "The least TLS version is one of TLSV1_0, TLSV1_1, TLSV1_2 and TLSV1_3, and no cipher's name is empty.",
        "With a name that the load balancer does not know, no connection could be made.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "cloudaccount-shape",
        "A cloud account is one of aws, azure, gcp and ngs; a role is written as arn:aws:iam::ACCOUNT:role/NAME.",
        "Otherwise nothing can be signed in to, and each identity behind it fails.",
        "docs/platform/fields.md#cloud-account",
    ),
    error_rule(
        "org-retention",
        "Logs, metrics and traces are kept for 0 to 3650 days.",
        "Storage is not promised for longer.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "org-session",
        "A session lasts at least 900 seconds.",
        "With less people would be signed out while they work.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "org-logging",
        "Logs go to exactly one receiver an entry, with the modes, formats and severities of syslog where it is one.",
        "An entry with two receivers would leave open where the logs are.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "org-security",
        "Threat detection tells of warnings, errors or critical events, over tcp or udp.",
        "With any other word nothing would be told.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "ipset-link",
        "An IP set belongs to a GVC or a workload, linked to with the GVC's name.",
        "Nothing else can have addresses.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "ipset-retention",
        "An address that is no longer needed is kept or freed: keep or free.",
        "An address that was freed by mistake does not come back.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "mk8s-provider",
        "A cluster has exactly one provider.",
        "Nodes of two providers do not make one cluster.",
        "docs/platform/fields.md#other-kinds",
    ),
)
