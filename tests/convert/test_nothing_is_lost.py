"""Every field of a document is converted or reported; no input makes a conversion fail or reveals a secret."""

from __future__ import annotations

import copy
import random
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.convert.kubernetes.bundle import SourceDocument
from reconciler.convert.kubernetes.convert import convert_kubernetes_resources
from reconciler.convert.kubernetes.unused_fields import ANY, QUIET_ANNOTATIONS, SAME_HERE
from reconciler.convert.notes import ConversionNote, make_findings
from reconciler.convert.reader import read_kubernetes
from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_stream
from reconciler.model.finding import Pointer
from tests.convert.test_cases import FILES, case_of

INPUTS = [file for file in FILES if not case_of(file)["code"] and "input" in case_of(file)]

OF_THE_USER = frozenset(
    {
        "labels",
        "annotations",
        "data",
        "stringData",
        "binaryData",
        "selector",
        "matchLabels",
        "parameters",
        "metadata",
        "status",
        "capacity",
    }
)
"""Mappings with keys of the user's own choice, or of the cluster's."""
ONLY_INFORM = frozenset({"PersistentVolume", "StorageClass", "List"})
NOVEL = "novelField"


def sources_of(file: Any) -> list[SourceDocument]:
    return read_kubernetes({"input.yaml": case_of(file)["input"].encode()})[0]


def mappings(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    """Where an unknown field could be added."""
    if isinstance(value, dict):
        if value.get("kind") not in ONLY_INFORM:
            yield at
        for name, member in value.items():
            if name not in OF_THE_USER and not (value.get("kind") in ONLY_INFORM and name != "items"):
                yield from mappings(member, (*at, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from mappings(item, (*at, index))


def below(value: Any, at: Pointer) -> Any:
    for step in at:
        value = value[step]
    return value


LEFT_OUT = ("left out", "no counterpart", "not among the files", "cannot be probed")


def reports(remarks: list[ConversionNote], position: int, at: Pointer) -> bool:
    """Whether a field at ``at`` is named, or a field around it is reported as left out."""
    here = [remark for remark in remarks if remark.index == position and remark.at]
    if any(NOVEL in remark.message and remark.at[: len(at)] == at for remark in here):
        return True
    if any(is_named(remark, at) for remark in here):
        return True
    near = [remark for remark in here if remark.at[: len(at)] == at or at[: len(remark.at)] == remark.at]
    return any(words in remark.message for remark in near for words in LEFT_OUT if NOVEL not in remark.message)


@pytest.mark.parametrize("file", INPUTS, ids=lambda file: file.stem)
def test_an_unknown_field_is_named_at_every_depth(file: Any) -> None:
    sources = sources_of(file)
    set_aside = {
        (remark.index, remark.at[:-1])
        for remark in convert_kubernetes_resources(sources).remarks
        if remark.rule in ("convert-no-meaning", "convert-owned") or remark.message.endswith("which creates it")
    }
    silent = []
    for number, source in enumerate(sources):
        for at in mappings(source.value):
            if any((source.position, at[:depth]) in set_aside for depth in range(len(at) + 1)):
                continue
            changed = copy.deepcopy(source.value)
            below(changed, at)[NOVEL] = 1
            remarks = convert_kubernetes_resources(
                [*sources[:number], source._replace(value=changed), *sources[number + 1 :]]
            ).remarks
            if not reports(remarks, source.position, at):
                silent.append((source.position, at))
    assert silent == []


def is_named(remark: ConversionNote, at: Pointer) -> bool:
    """Whether ``remark`` names the field that leads to ``at`` among those beside the one at which it stands."""
    depth = len(remark.at) - 1
    return len(at) > depth and at[:depth] == remark.at[:depth] and f"`{at[depth]}`" in remark.message


def outcome(sources: list[SourceDocument]) -> tuple[str, frozenset[tuple[str, str]]]:
    """What is written, and the remarks about it."""
    made = convert_kubernetes_resources(sources)
    return render_stream(draft.body for draft in made.drafts), frozenset(
        (each.rule, each.message) for each in made.remarks
    )


def fields_of(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    """Where a field could be taken away: all of them but what the documentation lists as left out without a word."""
    for step, member in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(step, str) and (step in SILENT or step.startswith(QUIET_ANNOTATIONS) or is_default(step, member)):
            continue
        yield (*at, step)
        if isinstance(member, dict | list):
            yield from fields_of(member, (*at, step))


def is_default(name: str, value: Any) -> bool:
    accepted = SAME_HERE.get(name, ())
    return ANY in accepted or any(value == each and type(value) is type(each) for each in accepted)


SILENT = frozenset({"status", "uid", "ownerReferences", "generateName", "apiVersion", "selector", "matchLabels"})
"""What the cluster writes, and what only ties resources together."""

TIES = ("template", "metadata")
"""Labels by which a workload finds its pods; `test_every_field` takes the others."""


def form_of(kind: str, at: Pointer) -> str:
    """``Deployment spec.template.spec.containers.#.image``."""
    return f"{kind} {'.'.join(step if isinstance(step, str) else '#' for step in at)}"


def missed(file: Any) -> Iterator[tuple[str, bool]]:
    """The form of each field in the documents of ``file``, and whether a remark reports its loss."""
    sources = sources_of(file)
    before, remarks = outcome(sources), convert_kubernetes_resources(sources).remarks
    for number, source in enumerate(sources):
        reported = [remark.at for remark in remarks if remark.index == source.position and len(remark.at) > 1]
        for at in fields_of(source.value):
            changed = copy.deepcopy(source.value)
            del below(changed, at[:-1])[at[-1]]
            related = any(at[: len(pair)] == pair for pair in reported)
            after = outcome([*sources[:number], source._replace(value=changed), *sources[number + 1 :]])
            yield form_of(source.value["kind"], at), related or after != before


@pytest.mark.slow
def test_a_field_that_is_taken_away_is_missed() -> None:
    forms: dict[str, bool] = {}
    for file in INPUTS:
        for form, noticed in missed(file):
            forms[form] = forms.get(form, False) or noticed
    lost = {form for form, noticed in forms.items() if not noticed and ".".join(TIES) not in form}
    assert lost == NOT_MISSED.keys()


_NAMED = "the resource is named as a whole"
_POD = "spec.template.spec"
NOT_MISSED = {
    "CronJob spec.jobTemplate.spec.template.spec.containers.#.livenessProbe.tcpSocket.port": "the probe is named",
    "DaemonSet spec.updateStrategy.type": "RollingUpdate is what is done anyway",
    f"Deployment {_POD}.containers.#.securityContext.capabilities.add.#": "the capabilities are named",
    f"Deployment {_POD}.securityContext.runAsUser": "each container has a user of its own there",
    f"Deployment {_POD}.tolerations.#.key": "the tolerations are named",
    f"Deployment {_POD}.tolerations.#.operator": "the tolerations are named",
    f"Deployment {_POD}.volumes.#.configMap.defaultMode": "0644 is the default",
    "Ingress spec.rules.#.http.paths.#.backend.servicePort": "the Service has one port",
    "PersistentVolume spec.csi.driver": "only the size and the file system of a disk are of interest",
    "PersistentVolume spec.csi.volumeHandle": "only the size and the file system of a disk are of interest",
    "Pod metadata.namespace": _NAMED,
    "Pod spec": _NAMED,
    "Pod spec.containers": _NAMED,
    "Pod spec.containers.#": _NAMED,
    "Pod spec.containers.#.image": _NAMED,
    "Pod spec.containers.#.name": _NAMED,
    "PodDisruptionBudget metadata.namespace": _NAMED,
    "PodDisruptionBudget spec": _NAMED,
    "PodDisruptionBudget spec.minAvailable": _NAMED,
    "Secret data.user": "stringData has the key too",
    "Service spec.externalName": _NAMED,
    "ServiceAccount imagePullSecrets": "the pod names the same secret",
    "ServiceAccount imagePullSecrets.#": "the pod names the same secret",
    "StorageClass provisioner": "the parameters say what sort of disk it is",
}
"""Fields whose loss is never reported, and why nothing is lost."""


ODD: list[Any] = [None, True, -1, 1.5, 10**15, "", "x", "a b", "-", "99999", "1Gi", [], {}, ["x"], {"x": 1}, [[]], [{}]]


def mutated(value: Any, dice: random.Random) -> Any:
    """``value`` with a few parts replaced, dropped, doubled or moved."""
    value = copy.deepcopy(value)
    for _ in range(dice.randint(1, 3)):
        places = [at for at in everywhere(value) if at]
        if not places:
            return value
        at = dice.choice(places)
        holder = below(value, at[:-1])
        action = dice.randrange(4)
        if action == 0:
            del holder[at[-1]]
        elif action == 1:
            holder[at[-1]] = copy.deepcopy(below(value, dice.choice(places)))
        else:
            holder[at[-1]] = copy.deepcopy(dice.choice(ODD))
    return value


def everywhere(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in parts:
        yield from everywhere(member, (*at, step))


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if number % 3 else [])
        for number, file in enumerate(INPUTS)
    ],
)
def test_no_document_makes_a_conversion_fail(file: Any) -> None:
    dice = random.Random(file.stem)
    sources = sources_of(file)
    for _ in range(60):
        number = dice.randrange(len(sources))
        changed = mutated(sources[number].value, dice)
        converted = convert_kubernetes_resources(
            [*sources[:number], sources[number]._replace(value=changed), *sources[number + 1 :]]
        )
        text = render_stream(draft.body for draft in converted.drafts)
        assert parse_documents(text.encode()).faults == []


def test_no_value_of_a_secret_comes_out_as_a_message() -> None:
    canary = "kanarienvogel"
    values = {
        "a": b64encode(canary.encode()).decode(),
        "b": canary,
        "c": [canary],
        "d": {canary: canary},
        "e": b64encode(f"{canary}\x01".encode()).decode(),
        "f": b64encode(f"{canary}\r\n".encode()).decode(),
    }
    kinds = [
        "Opaque",
        "kubernetes.io/dockerconfigjson",
        "kubernetes.io/dockercfg",
        "kubernetes.io/basic-auth",
        "kubernetes.io/tls",
        None,
    ]
    for kind in kinds:
        for field in ("data", "stringData"):
            value = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": kind, field: values}
            raw = render_stream([value]).encode()
            sources, faults = read_kubernetes({"a.yaml": raw})
            reported = [*faults, *make_findings(convert_kubernetes_resources(sources).remarks, {"a.yaml": raw})]
            assert reported
            assert not any(canary in f"{each.message}{each.suggestion}" for each in reported)
            assert not any(values["a"] in f"{each.message}{each.suggestion}" for each in reported)
