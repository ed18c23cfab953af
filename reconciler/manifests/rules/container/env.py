"""Environment variables: their names, what their values refer to, and PORT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import Advice, cross_rule, rule
from reconciler.manifests.rules.text import quoted
from reconciler.model.finding import Flaw, Lookup, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.workload import Container, Variable, Workload, declared_ports
from reconciler.model.platform import PLATFORM_URI, VOLUMESET_URI
from reconciler.model.resource import GVC_PLACEHOLDER, LookupRequest, pointer_parts


class Holder(Protocol):
    """A container, or the body of a GVC: both have environment variables."""

    @property
    def env(self) -> tuple[Variable, ...]:
        """The variables as written."""


def holders(view: Workload | Gvc) -> Sequence[Holder]:
    """The containers of a workload, or the body of a GVC alone."""
    return view.spec.containers if isinstance(view, Workload) else (view.spec,)


def env_of(view: Workload | Gvc, index: int) -> Pointer:
    """The pointer to the variables of holder ``index``."""
    return ("spec", "containers", index, "env") if isinstance(view, Workload) else ("spec", "env")


def asking(question: LookupRequest, workload: Workload) -> Container:
    """The container of ``workload`` that ``question`` was asked for; an empty one if it no longer exists."""
    index = pointer_parts(question.pointer)[2]
    containers = workload.spec.containers
    return containers[index] if isinstance(index, int) and index < len(containers) else Container()


@rule("env-duplicate", "docs/platform/workload.md#environment-variables", Kind.WORKLOAD, Kind.GVC)
def duplicates(view: Workload | Gvc) -> Iterator[Flaw]:
    """A variable is set once in a container, and once in a GVC.

    Of two with one name only one reaches the program, and it is unclear which.
    """
    for index, holder in enumerate(holders(view)):
        if len({variable.name for variable in holder.env}) == len(holder.env):
            continue
        place = env_of(view, index)
        first: dict[str, int] = {}
        for step, variable in enumerate(holder.env):
            earlier = first.setdefault(variable.name, step)
            if earlier != step and variable.name:
                also = ((*place, earlier, "name"),)
                yield Flaw(
                    (*place, step, "name"), f"{quoted(variable.name)} is set already", "keep one of the two", also
                )


@rule("env-reference", "docs/platform/workload.md#secrets-as-variables", Kind.WORKLOAD)
def references(workload: Workload) -> Iterator[Flaw]:
    """The value of a variable is plain text, or refers to a secret.

    A volume set contains files and no text: containers mount it, and a variable cannot contain it.
    """
    for index, container in enumerate(workload.spec.containers):
        for step, variable in enumerate(container.env):
            if variable.value.startswith(VOLUMESET_URI):
                at = ("spec", "containers", index, "env", step, "value")
                yield Flaw(at, "a variable cannot contain a volume set", "mount it: list it in `volumes` with a `path`")


@rule("env-port", "docs/platform/workload.md#the-variable-port", Kind.WORKLOAD)
def port(workload: Workload) -> Iterator[Flaw | Lookup]:
    """`PORT` is one of the ports that the container declares, if it declares any.

    The platform sets `PORT` to the container's first port itself and sends requests to the declared ports only; a
    program on another port gets none. With `inheritEnv` this holds for the `PORT` of the GVC too.
    """
    for index, container in enumerate(workload.spec.containers):
        step = next((step for step, each in enumerate(container.env) if each.name == "PORT"), None)
        if step is None:
            if container.inherit_env and declared_ports(container):
                yield Lookup(("spec", "containers", index, "inheritEnv"), f"gvc/{workload.gvc or GVC_PLACEHOLDER}")
        elif not _fits(container.env[step].value, container):
            place = ("spec", "containers", index)
            words = _misfit(container.env[step].value, container, workload.spec.type)
            yield Flaw((*place, "env", step, "value"), *words, ((*place, "ports"), (*place, "port")))


@cross_rule("env-port", lambda question, world: not _ports_of(question.target, world))
def inherited_port(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """The GVC sets PORT, and the container that inherits it declares other ports."""
    values = _ports_of(question.target, world)
    workload = world.bodies.typed(subject, Workload) if values else None
    if workload is None:
        return
    container = asking(question, workload)
    for value in values:
        if not _fits(value, container):
            message, hint = _misfit(value, container, workload.spec.type)
            yield f"inherited from the GVC: {message}", hint


def _ports_of(gvc: str, world: RuleContext) -> list[str]:
    """The value of PORT in ``gvc``, if it is known and set."""
    found = world.bodies.typed(gvc, Gvc)
    if found is None:
        return []
    return world.memoized(("PORT", gvc), lambda: [each.value for each in found.spec.env if each.name == "PORT"])


def _misfit(value: str, container: Container, type_: str) -> Advice:
    first = declared_ports(container)[0]
    more = ", or add the port to `ports`" if container.ports and type_ != "serverless" else ""
    hint = f"leave PORT out, since the platform sets it to {first}{more}"
    return f"PORT is {quoted(value)}, which is no port of this container", hint


def _fits(value: str, container: Container) -> bool:
    """Whether ``value`` may be the PORT of ``container``; a value with variables may always be."""
    if "$(" in value or value.startswith(PLATFORM_URI):
        return True
    numbers = [str(each.number) for each in container.ports]
    if container.port:
        numbers.append(str(container.port))
    return not numbers or value in numbers
