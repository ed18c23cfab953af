"""Who may do what: all, but for what a test forbids."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

from tests.kubernetes.fake.errors import ApiError, Object, Resource, forbidden


class Rule(NamedTuple):
    """A verb, a resource such as ``deployments.apps`` or ``pods/log``, and a namespace that are refused: patterns."""

    verb: str
    resource: str
    namespace: str


class Authorizer:
    """Refuses what a rule forbids."""

    def __init__(self, user: str) -> None:
        self.user = user
        self._rules: list[Rule] = []

    def forbid(self, resource: str, verb: str = "*", namespace: str = "*") -> None:
        """Refuse requests from now on."""
        self._rules.append(Rule(verb, resource, namespace))

    def allow(self) -> None:
        """Refuse nothing any more."""
        self._rules.clear()

    def allows(self, verb: str, resource: str, namespace: str) -> bool:
        """Whether no rule refuses it."""
        return not any(
            fnmatch(verb, rule.verb) and fnmatch(resource, rule.resource) and fnmatch(namespace, rule.namespace)
            for rule in self._rules
        )

    def check(self, verb: str, resource: Resource, namespace: str, name: str, subresource: str) -> None:
        """ApiError where a rule refuses it."""
        full = resource.full_name
        if subresource:
            full = f"{resource.plural}/{subresource}" + (f".{resource.group}" if resource.group else "")
        if not self.allows(verb, full, namespace):
            raise self._refusal(verb, resource, namespace, name, subresource)

    def _refusal(self, verb: str, resource: Resource, namespace: str, name: str, subresource: str) -> ApiError:
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        return forbidden(
            resource,
            name,
            f'User "{self.user}" cannot {verb} resource "{plural}" in API group "{resource.group}" {scope}',
        )

    def review(self, body: Object) -> Object:
        """A SelfSubjectAccessReview with its status."""
        attributes = (body.get("spec") or {}).get("resourceAttributes") or {}
        plural, group = attributes.get("resource", ""), attributes.get("group", "")
        if attributes.get("subresource"):
            plural += f"/{attributes['subresource']}"
        full = f"{plural}.{group}" if group else plural
        allowed = self.allows(attributes.get("verb", ""), full, attributes.get("namespace", ""))
        return body | {"status": {"allowed": allowed}}
