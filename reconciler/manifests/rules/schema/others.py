"""Rules of the schemas about resources of the org: policies, identities, secrets, domains, accounts and the rest."""

from __future__ import annotations

from reconciler.manifests.rules.registry import Section
from reconciler.model.rule import error_rule

SECTION = Section.OTHERS


SCHEMA_RULES = (
    error_rule(
        "policy-target",
        "A policy is about one kind, and about all its resources, at most 200 listed ones, or those of a query: "
        "exactly one of target, targetLinks and targetQuery.",
        "Permissions on nothing, or on two different sets at once, would be unclear.",
        "docs/platform/fields.md#policy",
    ),
    error_rule(
        "policy-principal",
        "A principal is a user, a group, a service account, or an identity with its GVC.",
        "A policy belongs to no GVC, so an identity's name alone is ambiguous; other kinds cannot act.",
        "docs/platform/fields.md#policy",
    ),
    error_rule(
        "policy-bindings",
        "A policy has at most 50 bindings, each with at least one permission and 1 to 200 principals.",
        "A binding without permissions or principals grants nothing.",
        "docs/platform/fields.md#policy",
    ),
    error_rule(
        "identity-aws",
        "Access to AWS names either policies, of at most 69 characters each, or one role.",
        "An existing role has its own policies; the two contradict each other.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "identity-gcp",
        "Access to GCP names either bindings, each with at least one role, or one service account.",
        "An existing service account has its own roles; the two contradict each other. A binding without a role grants "
        "nothing.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "identity-azure",
        "A role assignment of Azure names a scope and at least one role.",
        "Without one of them it grants nothing.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "network-resource",
        "An identity has at most 50 network resources and 50 native ones. One behind an agent has 1 to 5 addresses or "
        "a host name, and 1 to 10 ports; a native one a host name, ports, and PrivateLink or Service Connect.",
        "A workload finds it only by this description: two of them could lead to different hosts.",
        "docs/platform/fields.md#identity",
    ),
    error_rule(
        "secret-type",
        "A secret has one of the types of the platform.",
        "The type decides the content of data, how it is mounted and where it can be used.",
        "docs/platform/fields.md#secret",
    ),
    error_rule(
        "secret-shape",
        "The data of a secret has the form of its type: an encoding is plain or base64, JSON texts are not empty.",
        "Containers that use the secret would get an unreadable value.",
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
        "An ecr secret is for 1 to 20 repositories.",
        "Without a repository it has no use, and the platform signs in to at most 20.",
        "docs/platform/fields.md#secret",
    ),
    error_rule(
        "group-member",
        "A group lists at most 200 members, users and service accounts.",
        "Other kinds cannot be members, and a query is the better way to a larger group.",
        "docs/platform/fields.md#group",
    ),
    error_rule(
        "domain-accept",
        "A domain takes requests for all hosts or for all subdomains, not both.",
        "All hosts include the subdomains, so it would be unclear which certificate applies.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "domain-port",
        "A domain has at most 10 ports, from 1 to 65535, with the protocol http2, http or tcp.",
        "The load balancer supports no others.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "route-count",
        "A port of a domain has at most 150 routes.",
        "The load balancer tries the routes of a port one after the other for each request.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "route-match",
        "A route matches paths by exactly one of prefix and regex.",
        "With both, or neither, it would be unclear which requests match.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "route-host",
        "A route matches hosts by hostPrefix or hostRegex, not both.",
        "With both it would be unclear which requests match.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "cors-origin",
        "An origin has exactly one of exact and regex.",
        "With both, the answer to a browser would depend on which one is read first.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "cors-age",
        "The age of a CORS answer is a duration such as 24h.",
        "A number without a unit has no effect, and browsers would ask before each request.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "domain-tls",
        "The minimum TLS version is one of TLSV1_0, TLSV1_1, TLSV1_2 and TLSV1_3, and no cipher's name is empty.",
        "With a name that the load balancer does not support, no connection would succeed.",
        "docs/platform/fields.md#domain",
    ),
    error_rule(
        "cloudaccount-shape",
        "A cloud account is one of aws, azure, gcp and ngs; a role is written as arn:aws:iam::ACCOUNT:role/NAME.",
        "Otherwise the platform cannot sign in, and each identity that uses the account fails.",
        "docs/platform/fields.md#cloud-account",
    ),
    error_rule(
        "org-retention",
        "Logs, metrics and traces are kept for 0 to 3650 days.",
        "The platform does not store them for longer.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "org-session",
        "A session lasts at least 900 seconds.",
        "With less, people would be signed out while they work.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "org-logging",
        "Each entry sends logs to exactly one receiver; that of syslog has its modes, formats and severities.",
        "With two receivers in an entry it would be unclear where the logs are.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "org-security",
        "Threat detection reports warnings, errors or critical events, over tcp or udp.",
        "With any other word nothing would be reported.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "ipset-link",
        "An IP set belongs to a GVC or a workload; the link includes the GVC's name.",
        "Nothing else can have addresses.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "ipset-retention",
        "The policy for an unused address is keep or free.",
        "An address that was freed by mistake is lost.",
        "docs/platform/fields.md#other-kinds",
    ),
    error_rule(
        "mk8s-provider",
        "A cluster has exactly one provider.",
        "Nodes of two providers do not form one cluster.",
        "docs/platform/fields.md#other-kinds",
    ),
)
