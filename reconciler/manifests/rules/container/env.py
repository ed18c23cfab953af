"""Environment variables: their names, what their values refer to, and PORT."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import Advice, cross_rule, register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw, Lookup, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.workload import Container, Variable, Workload, declared_ports
from reconciler.model.platform import PLATFORM_URI, SPELLING, VOLUMESET_URI
from reconciler.model.resource import GVC_PLACEHOLDER, LookupRequest, pointer_parts

_NEAR_REFERENCE = re.compile(rf"(?:{SPELLING}:(?!//secret/)|cpln:)/*secret/([a-z0-9].*)|secret://([a-z0-9].*)")
"""Of a secret, with another number of slashes, or with the scheme of another platform."""


class VariableHolder(Protocol):
    """A container, or the body of a GVC: both have environment variables."""

    @property
    def env(self) -> tuple[Variable, ...]:
        """The variables as written."""


def list_variable_holders(view: Workload | Gvc) -> Sequence[VariableHolder]:
    """The containers of a workload, or the body of a GVC alone."""
    return view.spec.containers if isinstance(view, Workload) else (view.spec,)


def env_of(view: Workload | Gvc, index: int) -> Pointer:
    """The pointer to the variables of holder ``index``."""
    return ("spec", "containers", index, "env") if isinstance(view, Workload) else ("spec", "env")


def find_asking_container(question: LookupRequest, workload: Workload) -> Container:
    """The container of ``workload`` that ``question`` was asked for; an empty one if it no longer exists."""
    index = pointer_parts(question.pointer)[2]
    containers = workload.spec.containers
    return containers[index] if isinstance(index, int) and index < len(containers) else Container()


@register_rule("env-duplicate", "docs/platform/workload.md#environment-variables", Kind.WORKLOAD, Kind.GVC)
def check_duplicate_variables(view: Workload | Gvc) -> Iterator[Flaw]:
    """A variable is set once in a container, and once in a GVC.

    Of two with one name only one reaches the program, and it is unclear which.
    """
    for index, holder in enumerate(list_variable_holders(view)):
        if len({variable.name for variable in holder.env}) == len(holder.env):
            continue
        pointer = env_of(view, index)
        first: dict[str, int] = {}
        for step, variable in enumerate(holder.env):
            earlier = first.setdefault(variable.name, step)
            if earlier != step and variable.name:
                also = ((*pointer, earlier, "name"),)
                yield Flaw(
                    (*pointer, step, "name"), f"{quote_text(variable.name)} is set already", "keep one of the two", also
                )


@register_rule("env-reference", "docs/platform/workload.md#secrets-as-variables", Kind.WORKLOAD)
def check_variable_references(workload: Workload) -> Iterator[Flaw]:
    """The value of a variable is plain text, or refers to a secret.

    A volume set contains files and no text: containers mount it, and a variable cannot contain it.
    """
    for index, container in enumerate(workload.spec.containers):
        for step, variable in enumerate(container.env):
            if variable.value.startswith(VOLUMESET_URI):
                at = ("spec", "containers", index, "env", step, "value")
                yield Flaw(at, "a variable cannot contain a volume set", "mount it: list it in `volumes` with a `path`")


@register_warning("env-near-reference", "docs/platform/workload.md#secrets-as-variables", Kind.WORKLOAD)
def check_near_references(workload: Workload) -> Iterator[Flaw]:
    """A value that looks like the link to a secret is written as one.

    With another spelling, the program gets the text of the link in place of the secret.
    """
    for index, container in enumerate(workload.spec.containers):
        for step, variable in enumerate(container.env):
            value = variable.value
            if match := _NEAR_REFERENCE.fullmatch(value):
                at = ("spec", "containers", index, "env", step, "value")
                link = f"{PLATFORM_URI}secret/{match[1] or match[2]}"
                yield Flaw(at, "the program gets this text, and no secret", f"did you mean `{link}`?")


@register_rule("env-port", "docs/platform/workload.md#the-variable-port", Kind.WORKLOAD)
def check_port_variable(workload: Workload) -> Iterator[Flaw | Lookup]:
    """`PORT` is one of the ports that the container declares, if it declares any.

    The platform sets `PORT` to the container's first port itself and sends requests to the declared ports only; a
    program on another port gets none. With `inheritEnv` this holds for the `PORT` of the GVC too.
    """
    for index, container in enumerate(workload.spec.containers):
        step = next((step for step, variable in enumerate(container.env) if variable.name == "PORT"), None)
        if step is None:
            if container.inherit_env and declared_ports(container):
                yield Lookup(("spec", "containers", index, "inheritEnv"), f"gvc/{workload.gvc or GVC_PLACEHOLDER}")
        elif not _is_allowed_port(container.env[step].value, container):
            pointer = ("spec", "containers", index)
            words = _describe_port_mismatch(container.env[step].value, container, workload.spec.type)
            yield Flaw((*pointer, "env", step, "value"), *words, ((*pointer, "ports"), (*pointer, "port")))


@cross_rule("env-port", lambda question, world: not _ports_of(question.target, world))
def inherited_port(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """The GVC sets PORT, and the container that inherits it declares other ports."""
    values = _ports_of(question.target, world)
    workload = world.bodies.read_view(subject, Workload) if values else None
    if workload is None:
        return
    container = find_asking_container(question, workload)
    for value in values:
        if not _is_allowed_port(value, container):
            message, hint = _describe_port_mismatch(value, container, workload.spec.type)
            yield f"inherited from the GVC: {message}", hint


def _ports_of(gvc: str, world: RuleContext) -> list[str]:
    """The value of PORT in ``gvc``, if it is known and set."""
    gvc_resource = world.bodies.read_view(gvc, Gvc)
    if gvc_resource is None:
        return []
    return world.memoize(
        ("PORT", gvc), lambda: [variable.value for variable in gvc_resource.spec.env if variable.name == "PORT"]
    )


def _describe_port_mismatch(value: str, container: Container, type_: str) -> Advice:
    first = declared_ports(container)[0]
    more = ", or add the port to `ports`" if container.ports and type_ != "serverless" else ""
    hint = f"leave PORT out, since the platform sets it to {first}{more}"
    return f"PORT is {quote_text(value)}, which is no port of this container", hint


def _is_allowed_port(value: str, container: Container) -> bool:
    """Whether ``value`` may be the PORT of ``container``; a value with variables may always be."""
    if "$(" in value or value.startswith(PLATFORM_URI):
        return True
    numbers = [str(port.number) for port in container.ports]
    if container.port:
        numbers.append(str(container.port))
    return not numbers or value in numbers
