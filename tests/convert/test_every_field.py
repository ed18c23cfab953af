"""Every field that Kubernetes has is converted, named, or listed as left out: none is dropped in silence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import yaml

from reconciler.convert.kubernetes.bundle import SourceDocument
from reconciler.convert.kubernetes.convert import convert_kubernetes_resources
from reconciler.convert.kubernetes.unused_fields import ANY, BOOKKEEPING, SAME_HERE
from reconciler.convert.notes import ConversionNote
from reconciler.documents.writer import render_stream
from reconciler.model.finding import Pointer
from tests.project.tree import ROOT

FIELDS: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tests/data/kubernetes_fields.yaml").read_bytes())
SAMPLES: dict[str, Any] = {"text": "zz", "number": 7, "flag": True, "labels": {"zz": "zz"}}
"""A value of each type, which no other field of the same name has."""

AROUND = """
{apiVersion: v1, kind: Secret, metadata: {name: sec}, stringData: {k: v}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {k: v}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: claim},
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 20Gi}}}}
"""
POD = """
containers:
- name: main
  image: n:1
  resources: {limits: {cpu: 1, memory: 1Gi}}
  ports: [{containerPort: 8080}]
  readinessProbe: {httpGet: {path: /, port: 8080, httpHeaders: [{name: a, value: b}]}}
  livenessProbe: {exec: {command: ['true']}}
  lifecycle: {preStop: {exec: {command: ['true']}}, postStart: {exec: {command: ['true']}}}
  envFrom: [{configMapRef: {name: conf}}]
  env: [{name: A, value: b}]
  volumeMounts: [{name: v, mountPath: /v}]
volumes: [{name: v, %s}]
"""
RUNNING = """
apiVersion: apps/v1
kind: %s
metadata: {name: web, labels: {app: web}}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {}}}
"""
BASES = {
    "Deployment": RUNNING % "Deployment",
    "StatefulSet": RUNNING % "StatefulSet",
    "DaemonSet": RUNNING % "DaemonSet",
    "ReplicaSet": RUNNING % "ReplicaSet",
    "ReplicationController": (RUNNING % "ReplicationController")
    .replace("apps/v1", "v1")
    .replace("{matchLabels: {app: web}}", "{app: web}"),
    "CronJob": """
        {apiVersion: batch/v1, kind: CronJob, metadata: {name: web}, spec: {schedule: '0 0 * * *',
        concurrencyPolicy: Forbid, jobTemplate: {spec: {template: {spec: {restartPolicy: Never}}}}}}""",
    "Job": "{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {template: {spec: {}}}}",
    "Service": """
        {apiVersion: v1, kind: Service, metadata: {name: svc},
        spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}""",
    "Ingress": """
        {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {rules: [{host: a.example.com,
        http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: svc, port: {number: 80}}}}]}}]}}""",
    "HorizontalPodAutoscaler": """
        {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {
        scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 1, maxReplicas: 3,
        metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]}}""",
    "ServiceAccount": "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}",
}
NEEDED = {
    "Service": ("Deployment",),
    "Ingress": ("Service", "Deployment"),
    "HorizontalPodAutoscaler": ("Deployment",),
    "ServiceAccount": ("Deployment",),
}
TEMPLATES = """
[{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 20Gi}}}}]
"""
VOLUMES = {
    "secret": "secret: {secretName: sec}",
    "configMap": "configMap: {name: conf, items: [{key: k, path: p}]}",
    "emptyDir": "emptyDir: {}",
    "claim": "persistentVolumeClaim: {claimName: claim}",
    "projected": "projected: {sources: [{secret: {name: sec}}]}",
}
NOT_MISSED = {
    "apiVersion": "the resource is known by its kind",
    "kind": "the resource is known by its kind",
    "envFrom.#.prefix": "there is no source for it",
    "ports.#.name": "it only says what is spoken there, and which port is meant",
    "ports.#.protocol": "UDP and SCTP are named",
    "volumeMounts.#.readOnly": "files of secrets are read-only here too",
    "optional": "what it names is there",
    "type": "what it says follows from the other fields",
    "pathType": "a path is a prefix unless it says otherwise",
    "accessModes.#": "those that share a volume are named",
    "volumes.#.name": "it is no volume yet",
    "metadata.labels.zz": "labels of pods, where there is no selector, are the selector",
    "replicas": "an autoscaler says how many",
}
"""Ends of the forms of fields that change nothing by themselves, and why nothing is lost."""


def base(kind: str, volume: str = "secret") -> Any:
    """A plain resource of ``kind``, with a pod that mounts ``volume`` where it has pods."""
    manifest = yaml.safe_load(BASES[kind])
    spec = manifest.get("spec", {})
    template = spec.get("template") or spec.get("jobTemplate", {}).get("spec", {}).get("template")
    if template:
        template["spec"].update(yaml.safe_load(POD % VOLUMES[volume]))
    if kind == "StatefulSet" and volume == "claim":
        manifest["spec"]["volumeClaimTemplates"] = yaml.safe_load(TEMPLATES)
        del template["spec"]["volumes"]
    return manifest


def filled(kind: Any, above: tuple[str, ...] = ()) -> Any:
    """A value in which every field is set, down to where fields of a sort that is open begin anew."""
    if isinstance(kind, list):
        return [filled(kind[0], above)]
    if kind in SAMPLES:
        return SAMPLES[kind]
    if kind in above:
        return {}
    return {field: filled(each, (*above, kind)) for field, each in FIELDS[kind].items()}


def grafted(value: Any, at: Pointer, sample: Any) -> Any:
    """A copy of ``value`` with ``sample`` at ``at``, None where it stands there already."""
    changed = here = copy.deepcopy(value)
    for step, following in pairwise(at):
        empty: Any = [] if isinstance(following, int) else {}
        here = _item(here, empty) if isinstance(here, list) else here.setdefault(step, empty)
    if isinstance(here, list):
        same = here[:1] == [sample]
        here[:1] = [sample]
    else:
        same = here.get(at[-1]) == sample
        here[at[-1]] = sample
    return None if same else changed


def _item(items: list[Any], empty: Any) -> Any:
    if not items:
        items.append(empty)
    return items[0]


MOST_STEPS = 20


class Search:
    """Finds fields of one resource that are dropped in silence, beside resources that it needs."""

    def __init__(self, value: Any, others: list[Any]) -> None:
        self.value = value
        self.others = [SourceDocument("a.yaml", number + 1, other) for number, other in enumerate(others)]
        self.before = self.outcome(value)[:2]

    def outcome(self, value: Any) -> tuple[str, frozenset[tuple[str, str]], list[ConversionNote]]:
        converted = convert_kubernetes_resources([SourceDocument("a.yaml", 0, value), *self.others])
        remarks = [each for each in converted.remarks if each.index == 0]
        return (
            render_stream(each.body for each in converted.drafts),
            frozenset((r.rule, r.message) for r in converted.remarks),
            remarks,
        )

    def silent(self, kind: Any, at: Pointer = ()) -> Iterator[str]:
        """The forms of what is dropped at or below ``at``, where fields of ``kind`` stand."""
        sample = filled(kind)
        changed = grafted(self.value, at, sample) if at else None
        if changed is not None:
            *after, remarks = self.outcome(changed)
            if any(names(remark, at) for remark in remarks):
                return
            if isinstance(kind, str) and kind in SAMPLES and tuple(after) == self.before:
                yield ".".join("#" if isinstance(step, int) else step for step in at)
        if isinstance(kind, list):
            yield from self.silent(kind[0], (*at, 0))
        elif kind not in SAMPLES and len(at) < MOST_STEPS:
            for field, each in FIELDS[kind].items():
                yield from self.silent(each, (*at, field))


LEFT_OUT = ("left out", "no counterpart", "not among the files", "cannot be")


def names(remark: ConversionNote, at: Pointer) -> bool:
    """Whether ``remark`` reports that the field at ``at``, or one around it, is left out."""
    if not any(words in remark.message for words in LEFT_OUT):
        return False
    beside = remark.at[:-1] == at[:-1] and f"`{at[-1]}`" in remark.message
    return beside or (len(remark.at) > 1 and at[: len(remark.at)] == remark.at)


def is_listed(form: str) -> bool:
    """Whether the documentation lists the field as left out without a word, or nothing is lost for another reason."""
    steps = form.split(".")
    if ANY in SAME_HERE.get(steps[-1], ()) or any(ANY in SAME_HERE.get(step, ()) for step in steps):
        return True
    if steps[-1] == "terminationGracePeriodSeconds" or (len(steps) > 1 and steps[-2] == "metadata" in steps):
        return steps[-1] in BOOKKEEPING | {"terminationGracePeriodSeconds"}
    return "ownerReferences" in steps or any(form == end or form.endswith(f".{end}") for end in NOT_MISSED)


ALIKE = ("DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Their pods are converted as those of a Deployment are: every run of the tests leaves them to the slow suites."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in ALIKE else []) for kind in BASES]
)
def test_no_field_is_dropped_in_silence(kind: str) -> None:
    others = [yaml.safe_load(each) for each in AROUND.split("---")] + [base(each) for each in NEEDED.get(kind, ())]
    assert [form for form in Search(base(kind), others).silent(kind) if not is_listed(form)] == []


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("volume", VOLUMES)
def test_no_field_of_a_volume_is_dropped_in_silence(kind: str, volume: str) -> None:
    others = [yaml.safe_load(each) for each in AROUND.split("---")]
    search, pod = Search(base(kind, volume), others), ("spec", "template", "spec")
    texts = [*search.silent(["Volume"], (*pod, "volumes"))]
    texts += search.silent(["VolumeMount"], (*pod, "containers", 0, "volumeMounts"))
    if kind == "StatefulSet":
        texts += search.silent(["PersistentVolumeClaim"], ("spec", "volumeClaimTemplates"))
    assert [form for form in texts if not is_listed(form)] == []


@pytest.mark.parametrize("number", range(3))
def test_no_field_of_what_is_read_is_dropped_in_silence(number: int) -> None:
    documents = [yaml.safe_load(each) for each in AROUND.split("---")]
    read_here = documents.pop(number)
    others = [*documents, base("Deployment", "claim")]
    found = Search(read_here, others).silent(read_here["kind"])
    assert [form for form in found if not is_listed(form)] == []
