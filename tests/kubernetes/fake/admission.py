"""What stands between a request and the storage: webhooks, quotas, namespaces."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from typing import Any, NamedTuple

from tests.kubernetes.fake.errors import ApiError, Cause, Object, Resource, forbidden, internal_error, not_found
from tests.kubernetes.fake.objects import canonical_quantity, quantity_value
from tests.kubernetes.fake.resources import Resources
from tests.kubernetes.fake.storage import Storage

Mutation = Callable[[Object], None]
"""Changes the object that it gets."""
COUNTED = frozenset({"pods", "services", "secrets", "configmaps", "persistentvolumeclaims"})


class Webhook(NamedTuple):
    """A webhook for objects of one kind; with ``timeout`` its server does not answer."""

    name: str
    kind: str
    mutate: Mutation | None = None
    denial: str = ""
    code: int = 400
    timeout: bool = False


class Admission:
    """Admits what is written."""

    def __init__(self, storage: Storage, resources: Resources) -> None:
        self._storage = storage
        self._resources = resources
        self._webhooks: list[Webhook] = []
        self._next_address = 10

    def mutate(self, kind: str, mutate: Mutation, name: str = "mutate.example.com") -> None:
        """Let a mutating webhook change each object of ``kind`` that is written."""
        self._webhooks.append(Webhook(name, kind, mutate))

    def deny(self, kind: str, message: str, code: int = 400, name: str = "deny.example.com") -> None:
        """Let a validating webhook deny each object of ``kind``."""
        self._webhooks.append(Webhook(name, kind, denial=message, code=code))

    def time_out(self, kind: str, name: str = "slow.example.com") -> None:
        """Let a webhook for ``kind`` not answer."""
        self._webhooks.append(Webhook(name, kind, timeout=True))

    def clear_webhooks(self) -> None:
        """Remove all webhooks."""
        self._webhooks.clear()

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """ApiError unless objects can be created in ``namespace``."""
        if not resource.namespaced:
            return
        spaces = self._resources.of_kind("Namespace")
        space = self._storage.find(spaces, "", namespace)
        if space is None:
            raise not_found(spaces, namespace)
        if space["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            text = f"namespace {namespace} is being terminated"
            raise forbidden(resource, name, why, [Cause("NamespaceTerminating", text, "metadata.namespace")])

    def change_object(self, value: Object) -> Object:
        """The object after the mutating webhooks."""
        for webhook in self._webhooks:
            if webhook.kind in (value["kind"], "*"):
                self._check_timeout(webhook)
                if webhook.mutate:
                    value = deepcopy(value)
                    webhook.mutate(value)
        return value

    def check_object(self, value: Object) -> None:
        """ApiError where a validating webhook denies the object."""
        for webhook in self._webhooks:
            if webhook.denial and webhook.kind in (value["kind"], "*"):
                reason = "Forbidden" if webhook.code == 403 else "BadRequest" if webhook.code == 400 else ""
                text = f'admission webhook "{webhook.name}" denied the request: {webhook.denial}'
                raise ApiError(webhook.code, reason, text)

    def _check_timeout(self, webhook: Webhook) -> None:
        if webhook.timeout:
            service = f"https://{webhook.name.partition('.')[0]}.webhooks.svc:443/?timeout=10s"
            why = f'failed to call webhook: Post "{service}": context deadline exceeded'
            raise internal_error(f'failed calling webhook "{webhook.name}": {why}')

    def check_quota(self, resource: Resource, value: Object) -> None:
        """ApiError where a ResourceQuota of the namespace does not allow one more object."""
        namespace = value["metadata"].get("namespace", "")
        for quota in self._storage.all(self._resources.of_kind("ResourceQuota"), namespace) if namespace else ():
            hard = quota["spec"].get("hard") or {}
            request = {name: amount for name, amount in usage_of(resource, value).items() if name in hard}
            used = {name: self._used(namespace, name) for name in request}
            over = [name for name in sorted(request) if used[name] + request[name] > quantity_value(hard[name])]
            if over:
                texts = [
                    ",".join(f"{name}={show_amount(amounts[name])}" for name in over)
                    for amounts in (request, used, hard)
                ]
                why = "exceeded quota: {}, requested: {}, used: {}, limited: {}".format(
                    quota["metadata"]["name"], *texts
                )
                raise forbidden(resource, value["metadata"]["name"], why)

    def _used(self, namespace: str, name: str) -> Decimal:
        total = Decimal(0)
        for resource in self._resources:
            for value in self._storage.all(resource, namespace):
                total += usage_of(resource, value).get(name, Decimal(0))
        return total

    def allocate(self, value: Object, live: Object | None) -> None:
        """Give a Service its addresses and node ports, or leave it those that it has."""
        spec, old = value["spec"], (live or {}).get("spec", {})
        if spec["type"] == "ExternalName":
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                if spec.get(name) == old.get(name):
                    spec.pop(name, None)
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = old.get("clusterIP") or self._take_address()
        spec["clusterIPs"] = spec.get("clusterIPs") or [spec["clusterIP"]]
        spec.setdefault("ipFamilies", old.get("ipFamilies") or ["IPv4"])
        spec.setdefault("ipFamilyPolicy", old.get("ipFamilyPolicy") or "SingleStack")
        exposed = spec["type"] in ("LoadBalancer", "NodePort")
        ports = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in old.get("ports") or ()}
        for port in spec.get("ports") or ():
            before = ports.get((port["port"], port["protocol"]))
            if exposed and not port.get("nodePort"):
                port["nodePort"] = before or self._take_port()
            elif not exposed and port.get("nodePort") == before:
                port.pop("nodePort", None)
        if not exposed and old.get("type") != spec["type"]:
            spec.pop("externalTrafficPolicy", None)
        if spec["type"] != "LoadBalancer":
            spec.pop("allocateLoadBalancerNodePorts", None)

    def _take_address(self) -> str:
        self._next_address += 1
        return f"10.96.{self._next_address // 250}.{self._next_address % 250 + 1}"

    def _take_port(self) -> int:
        self._next_address += 1
        return 30000 + self._next_address % 2768


def usage_of(resource: Resource, value: Object) -> dict[str, Decimal]:
    """What an object takes of a quota."""
    usage = {f"count/{resource.full_name}": Decimal(1)}
    if resource.plural in COUNTED and not resource.group:
        usage[resource.plural] = Decimal(1)
    if resource.kind == "PersistentVolumeClaim":
        size = ((value["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")
        usage["requests.storage"] = quantity_value(size)
    if resource.kind == "Pod":
        for container in value["spec"].get("containers") or ():
            for kind, amounts in (container.get("resources") or {}).items():
                for name, amount in amounts.items() if kind in ("limits", "requests") else ():
                    usage[f"{kind}.{name}"] = usage.get(f"{kind}.{name}", Decimal(0)) + quantity_value(amount)
    return usage


def show_amount(amount: Any) -> str:
    """A quantity in a message."""
    return canonical_quantity(f"{amount.normalize():f}" if isinstance(amount, Decimal) else amount)
