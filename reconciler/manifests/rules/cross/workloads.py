"""Other resources of a workload: its identity, its GVC, its volume sets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from reconciler.iteration import MOST_NAMED, first_of
from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.references import identity_of, place_of, read_linked_view
from reconciler.manifests.rules.registry import Advice, cross_rule, register_rule, register_warning, shared_cross_rule
from reconciler.model.finding import Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.identity import Identity
from reconciler.model.kinds.workload import Workload
from reconciler.model.platform import STORE_PROVIDERS, VOLUMESET_URI
from reconciler.model.resource import LookupRequest


@register_rule("identity-gvc", "docs/platform/workload.md#identity", Kind.WORKLOAD)
def own_identity(workload: Workload) -> Iterator[Lookup]:
    """The identity of a workload belongs to the GVC of the workload.

    An identity exists only in its own GVC; a workload of another GVC cannot use it.
    """
    link = workload.spec.identity_link
    if link and not link.startswith("//identity/"):
        target = identity_of(workload)
        if target:
            yield Lookup(("spec", "identityLink"), target)


@cross_rule("identity-gvc")
def same_gvc(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether both are in one GVC; the key of a target in another org is in full form."""
    gvc, there = subject.split("/")[1], question.target.split("/")[1]
    led = next(
        (reference.target for reference in world.index.references(subject) if reference.pointer == question.pointer), ""
    )
    if led.startswith("/org/"):
        yield (
            f"this identity belongs to the org {led.split('/')[2]}",
            f"link to an identity of {gvc}, as //identity/NAME",
        )
    elif gvc != there:
        yield (
            f"{question.target} belongs to GVC {there}, the workload to GVC {gvc}",
            f"link to an identity of {gvc}, as //identity/NAME",
        )


@register_rule("local-options-location", "docs/platform/workload.md#options-of-one-location", Kind.WORKLOAD)
def own_locations(workload: Workload) -> Iterator[Lookup]:
    """Local options are for locations of the workload's GVC.

    The workload runs only there, so options for another location have no effect: mostly the name is misspelled, or the
    GVC has left the location.
    """
    for index, options in enumerate(workload.spec.local_options):
        name = options.location.rpartition("/")[2]
        if name:
            yield Lookup(("spec", "localOptions", index, "location"), f"gvc/{place_of(workload.gvc)}", name)


@shared_cross_rule("local-options-location")
def among_locations(question: LookupRequest, _: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the GVC is at the location, if the locations of the GVC are known."""
    gvc_locations = world.locations(question.target.partition("/")[2])
    if gvc_locations and question.detail not in world.memoize(
        ("locations", question.target), lambda: frozenset(gvc_locations)
    ):
        yield f"{question.target} is not at location {question.detail}", f"it is at {first_of(gvc_locations)}"


@register_rule("volumeset-shared", "docs/platform/volumeset.md#who-uses-a-volume-set", Kind.WORKLOAD)
def own_volumes(workload: Workload) -> Iterator[Lookup]:
    """A volume set is used by one workload.

    Each replica gets its own volume from the set. Replicas of a second workload would get the same volumes, and two
    writers destroy a file system.
    """
    asked: set[str] = set()
    for number, container in enumerate(workload.spec.containers):
        for index, volume in enumerate(container.volumes):
            if volume.uri.startswith(VOLUMESET_URI) and volume.uri not in asked:
                asked.add(volume.uri)
                target = f"volumeset/{place_of(workload.gvc)}/{volume.uri[len(VOLUMESET_URI) :]}"
                yield Lookup(("spec", "containers", number, "volumes", index, "uri"), target)


@cross_rule("volumeset-shared")
def other_users(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """The other workloads that mount the set."""
    others = (key for key in world.index.users(question.target, Kind.WORKLOAD) if key != subject)
    # Thousands of workloads may share a set, so each call must not read all the others.
    mounting = list(islice((key for key in others if _mounts_volumeset(world, key, question.target)), MOST_NAMED + 1))
    if mounting:
        yield (
            f"{question.target} is mounted by {first_of(mounting)} too",
            "give each workload a volume set of its own",
        )


def _mounts_volumeset(world: RuleContext, key: str, volumeset: str) -> bool:
    """Whether ``key`` mounts the set, and does not only depend on it."""
    return any(ref.target == volumeset and ref.pointer.endswith("/uri") for ref in world.index.references(key))


@register_rule("object-store-access", "docs/platform/workload.md#object-stores", Kind.WORKLOAD)
def check_store_access(workload: Workload) -> Iterator[Lookup]:
    """The identity of a workload has cloud access with the provider of a mounted bucket, blob container or file share.

    The mount uses no other credentials, such as keys inside the container. Without the access it stays empty, or the
    replica does not start.
    """
    for number, container in enumerate(workload.spec.containers):
        for index, volume in enumerate(container.volumes):
            provider = STORE_PROVIDERS.get(volume.uri.partition("://")[0])
            target = identity_of(workload) if provider else ""
            if provider and target:
                yield Lookup(("spec", "containers", number, "volumes", index, "uri"), target, provider)


@cross_rule("object-store-access")
def cloud_access(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the identity has access with the provider, if the identity is known."""
    identity = read_linked_view(world, subject, question.target, Identity)
    if identity is None:
        return
    if question.detail not in {provider for provider, _ in identity.accesses()}:
        yield (
            f"{question.target} has no access to {question.detail}, which stores this",
            f"give it `{question.detail}:` with a cloudAccountLink",
        )


@register_warning("tcp-outside", "docs/platform/workload.md#tcp-ports", Kind.WORKLOAD)
def tcp_ports(workload: Workload) -> Iterator[Lookup]:
    """A tcp port that is open to addresses outside has a dedicated load balancer and a domain.

    The shared load balancers support only HTTP. Without a dedicated one, or without a domain, connections from outside
    never arrive, though the firewall allows them.
    """
    if workload.spec.type != "standard" or not workload.spec.firewall_config.external.inbound_allow_cidr:
        return
    for number, container in enumerate(workload.spec.containers):
        for index, port in enumerate(container.ports):
            if port.protocol == "tcp":
                at = ("spec", "containers", number, "ports", index, "protocol")
                yield Lookup(at, f"gvc/{place_of(workload.gvc)}", str(port.number))


@cross_rule("tcp-outside")
def answer_direct_access(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the GVC has a dedicated load balancer and a domain leads there, if the GVC is known."""
    gvc = world.bodies.read_view(question.target, Gvc)
    if gvc is None:
        return
    if not gvc.spec.load_balancer.dedicated:
        yield (
            f"nothing outside reaches tcp port {question.detail}: {question.target} has no dedicated load balancer",
            f"set spec.loadBalancer.dedicated: true in {question.target}, or close the firewall",
        )
    elif not (gvc.spec.domain or _any_unresolved_domain(world) or _has_domain(world, subject, question.target)):
        yield (
            f"nothing outside reaches tcp port {question.detail}: no domain leads to {subject}",
            f"add a domain that leads to it or to {question.target}",
        )


def _any_unresolved_domain(world: RuleContext) -> bool:
    return world.memoize(("unresolved", Kind.DOMAIN), lambda: bool(world.index.list_unresolved(Kind.DOMAIN)))


def _has_domain(world: RuleContext, *keys: str) -> bool:
    return any(world.index.users(key, Kind.DOMAIN) for key in keys)


@register_warning("host-command", "docs/platform/workload.md#containers", Kind.WORKLOAD)
def own_commands(workload: Workload) -> Iterator[Lookup]:
    """A container has a `command` at locations that do not use its image.

    At a location that the settings bind to the engine host with processes, containers are programs of that machine.
    Images are not used there, so nothing starts without a `command`.
    """
    for number, container in enumerate(workload.spec.containers):
        if not container.command:
            yield Lookup(("spec", "containers", number), f"gvc/{place_of(workload.gvc)}", container.name)


@cross_rule("host-command", lambda _, world: not world.index.process_locations)
def at_process_locations(question: LookupRequest, _: str, world: RuleContext) -> Iterator[Advice]:
    """The locations of its GVC that run programs of the host."""
    gvc_locations = world.locations(question.target.partition("/")[2])
    places = world.memoize(
        ("process locations", question.target),
        lambda: [location for location in gvc_locations or () if location in world.index.process_locations],
    )
    if places:
        yield (
            f"the container {question.detail} has no command, and at {first_of(places)} images are not used: "
            "nothing starts there",
            "add a command, or let the location run images: `runtime: podman` in the settings",
        )
