"""Secrets that a workload uses, in variables and volumes."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.env import asking
from reconciler.manifests.rules.registry import Words, answer, rule
from reconciler.manifests.rules.wording import quoted
from reconciler.manifests.rules.world import World
from reconciler.model.finding import Ask, Flaw, Pointer
from reconciler.model.gvc import Gvc
from reconciler.model.key import Kind
from reconciler.model.resource import OPEN_GVC, Question
from reconciler.model.workload import Container, Workload

SECRET = "platform://secret/"
_IDENTITY = ("spec", "identityLink")


@rule(
    "secret-without-identity",
    "document 1, Built-in environment variables, rule 4; 4-fields.md, section 7",
    Kind.WORKLOAD,
)
def without_identity(workload: Workload) -> Iterator[Flaw | Ask]:
    """A workload that uses a secret has an identity.

    Secrets are revealed to identities only: the workload's has to be in a policy that grants `reveal` on the secret.
    """
    if workload.spec.identity_link:
        return
    for index, container in enumerate(workload.spec.containers):
        at = _use(index, container)
        if at:
            message = "a secret is used here, and the workload has no identity that it could be revealed to"
            hint = "add `identityLink: //identity/NAME`, and a policy that grants this identity `reveal`"
            yield Flaw(at, message, hint, also=(_IDENTITY,))
            return
    for index, container in enumerate(workload.spec.containers):
        if container.inherit_env:
            yield Ask(("spec", "containers", index, "inheritEnv"), f"gvc/{workload.gvc or OPEN_GVC}")


@answer("secret-without-identity")
def inherited_without_identity(question: Question, subject: str, world: World) -> Iterator[Words]:
    """A container without an identity inherits a secret from the variables of its GVC."""
    gvc, workload = world.look(question.target, Gvc), world.look(subject, Workload)
    if gvc is None or workload is None:
        return
    own = {variable.name for variable in asking(question, workload).env}
    for variable in gvc.spec.env:
        if variable.name not in own and variable.value.startswith(SECRET):
            inherited = f"a secret comes with the GVC's variable {quoted(variable.name)}"
            yield f"{inherited}, and the workload has no identity", "add `identityLink: //identity/NAME`"
            return


def _use(index: int, container: Container) -> Pointer:
    """Where ``container`` uses a secret first; empty where it uses none."""
    for step, variable in enumerate(container.env):
        if variable.value.startswith(SECRET):
            return "spec", "containers", index, "env", step, "value"
    for step, volume in enumerate(container.volumes):
        if volume.uri.startswith(SECRET):
            return "spec", "containers", index, "volumes", step, "uri"
    return ()
