"""Kubernetes documents: workloads with their services, secrets, mounts and ingresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from reconciler.convert.budget import Budget
from reconciler.convert.kubernetes.convert import convert_kubernetes_resources as convert_kubernetes
from reconciler.convert.notes import make_findings
from reconciler.convert.reader import read_kubernetes
from reconciler.documents.writer import render_stream
from tests.cost.growth import Shape


def head(kind: str, name: str, api: str = "v1", more: str = "") -> str:
    """The beginning of a resource."""
    return f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop{more}}}\n"


def kubernetes(*parts: Callable[[int], Any], count: int = 200, tight: bool = False) -> Shape:
    """The documents that ``parts`` make, in one file."""

    def make(size: int) -> bytes:
        documents = [document for part in parts for document in part(size)]
        return yaml.dump_all(documents, Dumper=yaml.CSafeDumper, default_flow_style=None).encode()

    def convert(raw: bytes) -> None:
        contents = {"all.yaml": raw}
        sources, _ = read_kubernetes(contents)
        converted = convert_kubernetes(sources, budget=Budget(3_000) if tight else None)
        make_findings(converted.remarks, contents)
        render_stream(draft.body for draft in converted.drafts)

    return Shape(make, convert, count, repeats=tight)


def resource(kind: str, name: str, api: str = "v1", metadata: Mapping[str, Any] = {}, **fields: Any) -> dict[str, Any]:
    """One resource in the namespace shop."""
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "shop", **metadata}, **fields}


def deployment(
    name: str = "web",
    labels: Mapping[str, str] = {"app": "web"},
    pod: Mapping[str, Any] = {},
    kind: str = "Deployment",
    spec: Mapping[str, Any] = {},
    **container: Any,
) -> dict[str, Any]:
    """A Deployment, or the like, with one container."""
    containers = [{"name": "main", "image": "nginx", **container}]
    template = {"metadata": {"labels": {**labels}}, "spec": {"containers": containers, **pod}}
    return resource(kind, name, "apps/v1", spec={"selector": {"matchLabels": {**labels}}, "template": template, **spec})


def kube_service(name: str = "web", labels: Mapping[str, str] = {"app": "web"}, ports: Any = None) -> dict[str, Any]:
    """A Service."""
    return resource(
        "Service", name, spec={"selector": {**labels}, "ports": ports or [{"port": 80, "targetPort": 8080}]}
    )


def ingress(name: str, rules: Any, **spec: Any) -> dict[str, Any]:
    """An Ingress."""
    return resource("Ingress", name, "networking.k8s.io/v1", spec={"rules": rules, **spec})


def route(path: str, name: str = "web", port: int = 80) -> dict[str, Any]:
    """A path of an Ingress."""
    return {"path": path, "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": port}}}}


def rule(host: str, *routes: Any) -> dict[str, Any]:
    """A rule of an Ingress."""
    return {"host": host, "http": {"paths": [*routes]}}


Numbers = Callable[[int], Any]


def many(make: Callable[[int], Any]) -> Numbers:
    """A document for each number."""
    return lambda count: [make(number) for number in range(count)]


def one(make: Callable[[range], Any]) -> Numbers:
    """One document, which has all numbers."""
    return lambda count: [make(range(count))]


KUBERNETES: dict[str, Shape] = {
    "workloads": kubernetes(many(lambda n: deployment(f"w{n}"))),
    "workloads with a service each": kubernetes(
        many(lambda n: deployment(f"w{n}", {"app": f"w{n}"}, ports=[{"containerPort": 8080}])),
        many(lambda n: kube_service(f"w{n}", {"app": f"w{n}"})),
    ),
    "services of one workload": kubernetes(one(lambda _: deployment()), many(lambda n: kube_service(f"s{n}"))),
    "services of one workload, with two labels": kubernetes(
        one(lambda _: deployment(labels={"a": "b", "app": "web"})),
        many(lambda n: kube_service(f"s{n}", {"a": "b", "app": "web"})),
    ),
    "workloads of one service": kubernetes(
        many(lambda n: deployment(f"w{n}", ports=[{"containerPort": 8080}])), one(lambda _: kube_service())
    ),
    "workloads of one service with as many paths": kubernetes(
        many(lambda n: deployment(f"w{n}", ports=[{"containerPort": 8080}])),
        one(lambda _: kube_service()),
        one(lambda ns: ingress("i", [rule("a.example.com", *(route(f"/p{n}") for n in ns))])),
    ),
    "paths to a service each": kubernetes(
        many(lambda n: deployment(f"w{n}", {"app": f"w{n}"}, ports=[{"containerPort": 8080}])),
        many(lambda n: kube_service(f"w{n}", {"app": f"w{n}"})),
        one(lambda ns: ingress("i", [rule("a.example.com", *(route(f"/p{n}", f"w{n}") for n in ns))])),
    ),
    "paths to a service of many ports": kubernetes(
        one(lambda ns: deployment(ports=[{"containerPort": 2000 + n, "name": f"p{n}"} for n in ns])),
        one(lambda ns: kube_service(ports=[{"port": 2000 + n, "name": f"p{n}"} for n in ns])),
        one(lambda ns: ingress("i", [rule("a.example.com", *(route(f"/p{n}", port=2000 + n) for n in ns))])),
    ),
    "hosts": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])),
        one(lambda _: kube_service()),
        one(lambda ns: ingress("i", [rule(f"a{n}.example.com", route("/")) for n in ns])),
    ),
    "hosts with a certificate each": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])),
        one(lambda _: kube_service()),
        many(lambda n: resource("Secret", f"t{n}", data={"tls.crt": "QQ==", "tls.key": "QQ=="})),
        one(
            lambda ns: ingress(
                "i",
                [rule(f"a{n}.example.com", route("/")) for n in ns],
                tls=[{"hosts": [f"a{n}.example.com"], "secretName": f"t{n}"} for n in ns],
            )
        ),
    ),
    "certificates for all hosts": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])),
        one(lambda _: kube_service()),
        many(lambda n: resource("Secret", f"t{n}", data={"tls.crt": "QQ==", "tls.key": "QQ=="})),
        one(
            lambda ns: ingress(
                "i", [rule(f"a{n}.example.com", route("/")) for n in ns], tls=[{"secretName": f"t{n}"} for n in ns]
            )
        ),
        count=1_600,
    ),
    "ingresses": kubernetes(
        one(lambda _: deployment(ports=[{"containerPort": 8080}])),
        one(lambda _: kube_service()),
        many(lambda n: ingress(f"i{n}", [rule("a.example.com", route(f"/{n}"))])),
    ),
    "rules without a host": kubernetes(one(lambda ns: ingress("i", [{"http": {"paths": [route("/")]}} for _ in ns]))),
    "containers": kubernetes(
        one(lambda ns: deployment(pod={"containers": [{"name": f"c{n}", "image": "a"} for n in ns]}))
    ),
    "containers of one name": kubernetes(
        one(lambda ns: deployment(pod={"containers": [{"name": "c", "image": "a"} for _ in ns]}))
    ),
    "containers with a port each": kubernetes(
        one(
            lambda ns: deployment(
                pod={
                    "containers": [{"name": f"c{n}", "image": "a", "ports": [{"containerPort": 2000 + n}]} for n in ns]
                }
            )
        ),
        one(lambda ns: kube_service(ports=[{"port": 2000 + n, "name": f"p{n}"} for n in ns])),
    ),
    "init containers": kubernetes(one(lambda ns: deployment(pod={"initContainers": [{"name": f"c{n}"} for n in ns]}))),
    "ports": kubernetes(one(lambda ns: deployment(ports=[{"containerPort": 2000 + n} for n in ns]))),
    "ports with names that a service serves": kubernetes(
        one(lambda ns: deployment(ports=[{"containerPort": 2000 + n, "name": f"p{n}"} for n in ns])),
        one(lambda ns: kube_service(ports=[{"port": 2000 + n, "targetPort": f"p{n}"} for n in ns])),
        count=1_600,
    ),
    "ports of a service": kubernetes(
        one(lambda _: deployment()),
        one(lambda ns: kube_service(ports=[{"port": 2000 + n, "name": f"p{n}"} for n in ns])),
        count=1_600,
    ),
    "variables": kubernetes(one(lambda ns: deployment(env=[{"name": f"V{n}", "value": "a"} for n in ns]))),
    "variables of a secret": kubernetes(
        one(lambda ns: resource("Secret", "s", stringData={f"k{n}": "a" for n in ns})),
        one(
            lambda ns: deployment(
                env=[{"name": f"V{n}", "valueFrom": {"secretKeyRef": {"name": "s", "key": f"k{n}"}}} for n in ns]
            )
        ),
    ),
    "variables of secrets that are missing": kubernetes(
        one(
            lambda ns: deployment(
                env=[{"name": f"V{n}", "valueFrom": {"secretKeyRef": {"name": f"s{n}", "key": "k"}}} for n in ns]
            )
        )
    ),
    "all variables of a secret": kubernetes(
        one(lambda ns: resource("ConfigMap", "s", data={f"k{n}": "a" for n in ns})),
        one(lambda _: deployment(envFrom=[{"configMapRef": {"name": "s"}}])),
    ),
    "all variables of a secret, again and again": kubernetes(
        one(lambda ns: resource("ConfigMap", "s", data={f"k{n}": "a" for n in ns})),
        one(lambda ns: deployment(envFrom=[{"prefix": f"P{n}", "configMapRef": {"name": "s"}} for n in ns])),
        tight=True,
        count=600,
    ),
    "workloads with all variables of a secret": kubernetes(
        one(lambda ns: resource("ConfigMap", "s", data={f"k{n}": "a" for n in ns})),
        many(lambda n: deployment(f"w{n}", envFrom=[{"configMapRef": {"name": "s"}}])),
        tight=True,
        count=600,
    ),
    "mounts of a volume each": kubernetes(
        one(
            lambda ns: deployment(
                pod={"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in ns]},
                volumeMounts=[{"name": f"v{n}", "mountPath": f"/d{n}"} for n in ns],
            )
        ),
        count=300,
    ),
    "mounts of one volume": kubernetes(
        one(
            lambda ns: deployment(
                pod={"volumes": [{"name": "v", "emptyDir": {}}]},
                volumeMounts=[{"name": "v", "mountPath": f"/d{n}"} for n in ns],
            )
        ),
        count=300,
    ),
    "mounts inside one another": kubernetes(
        one(
            lambda ns: deployment(
                pod={"volumes": [{"name": "v", "emptyDir": {}}]},
                volumeMounts=[{"name": "v", "mountPath": f"/d/{n}/e"} for n in (*ns, *ns)],
            )
        ),
        count=300,
    ),
    "files of a secret": kubernetes(
        one(lambda ns: resource("Secret", "s", stringData={f"k{n}": "a" for n in ns})),
        one(
            lambda ns: deployment(
                pod={
                    "volumes": [
                        {
                            "name": "v",
                            "secret": {"secretName": "s", "items": [{"key": f"k{n}", "path": f"p{n}"} for n in ns]},
                        }
                    ]
                },
                volumeMounts=[{"name": "v", "mountPath": "/d"}],
            )
        ),
    ),
    "files of a secret, one mount each": kubernetes(
        one(lambda ns: resource("Secret", "s", stringData={f"k{n}": "a" for n in ns})),
        one(
            lambda ns: deployment(
                pod={
                    "volumes": [
                        {
                            "name": "v",
                            "secret": {"secretName": "s", "items": [{"key": f"k{n}", "path": f"p{n}"} for n in ns]},
                        }
                    ]
                },
                volumeMounts=[{"name": "v", "mountPath": f"/d{n}", "subPath": f"p{n}"} for n in ns],
            )
        ),
    ),
    "sources of a volume": kubernetes(
        many(lambda n: resource("ConfigMap", f"s{n}", data={"k": "a"})),
        one(
            lambda ns: deployment(
                pod={
                    "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": f"s{n}"}} for n in ns]}}]
                },
                volumeMounts=[{"name": "v", "mountPath": "/d"}],
            )
        ),
    ),
    "claims": kubernetes(
        many(
            lambda n: resource("PersistentVolumeClaim", f"c{n}", spec={"resources": {"requests": {"storage": "20Gi"}}})
        ),
        many(
            lambda n: deployment(
                f"w{n}",
                pod={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{n}"}}]},
                volumeMounts=[{"name": "v", "mountPath": "/d"}],
            )
        ),
    ),
    "workloads with one claim": kubernetes(
        one(lambda _: resource("PersistentVolumeClaim", "c", spec={"resources": {"requests": {"storage": "20Gi"}}})),
        many(
            lambda n: deployment(
                f"w{n}",
                pod={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
                volumeMounts=[{"name": "v", "mountPath": "/d"}],
            )
        ),
    ),
    "templates of claims": kubernetes(
        one(
            lambda ns: deployment(
                kind="StatefulSet",
                spec={
                    "volumeClaimTemplates": [
                        {"metadata": {"name": f"t{n}"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
                        for n in ns
                    ]
                },
                volumeMounts=[{"name": f"t{n}", "mountPath": f"/d{n}"} for n in ns],
            )
        ),
        count=300,
    ),
    "names that become one": kubernetes(
        many(lambda n: deployment(f"a{'_' * (n % 60 + 1)}{'.' * (n // 60)}")), count=300
    ),
    "labels": kubernetes(one(lambda ns: deployment(labels={f"l{n}": "a" for n in ns}))),
    "labels that services select": kubernetes(
        one(lambda ns: deployment(labels={f"l{n}": "a" for n in ns})),
        many(lambda n: kube_service(f"s{n}", {f"l{n}": "a"})),
    ),
    "labels of all": kubernetes(many(lambda n: resource("ConfigMap", f"c{n}", metadata={"labels": {f"l{n}": "a"}}))),
    "labels of one, for all": kubernetes(
        one(lambda ns: deployment(labels={f"l{n}": "a" for n in ns})),
        many(lambda n: resource("ConfigMap", f"c{n}", metadata={"labels": {"x": "a"}})),
    ),
    "annotations": kubernetes(
        one(lambda ns: resource("ConfigMap", "c", metadata={"annotations": {f"a{n}": "a" for n in ns}}, data={}))
    ),
    "owners": kubernetes(
        one(
            lambda ns: resource(
                "ConfigMap",
                "c",
                metadata={"ownerReferences": [{"kind": "Job", "name": f"o{n}", "controller": True} for n in ns]},
                data={},
            )
        )
    ),
    "keys of a secret": kubernetes(one(lambda ns: resource("Secret", "s", data={f"k{n}": "QQ==" for n in ns}))),
    "texts with addresses": kubernetes(
        many(lambda n: deployment(f"w{n}", {"app": f"w{n}"}, env=[{"name": "U", "value": f"http://w{n - 1}:80"}])),
        many(lambda n: kube_service(f"w{n}", {"app": f"w{n}"})),
    ),
    "one text with addresses": kubernetes(
        one(lambda _: deployment()),
        one(lambda _: kube_service()),
        one(lambda ns: resource("ConfigMap", "c", data={"k": " ".join(f"http://web:80/{n}" for n in ns)})),
    ),
    "autoscalers": kubernetes(
        many(lambda n: deployment(f"w{n}")),
        many(
            lambda n: resource(
                "HorizontalPodAutoscaler",
                f"w{n}",
                "autoscaling/v2",
                spec={"scaleTargetRef": {"kind": "Deployment", "name": f"w{n}"}, "maxReplicas": 3},
            )
        ),
    ),
    "metrics of an autoscaler": kubernetes(
        one(lambda _: deployment()),
        one(
            lambda ns: resource(
                "HorizontalPodAutoscaler",
                "web",
                "autoscaling/v2",
                spec={
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                    "maxReplicas": 3,
                    "metrics": [{"type": "Pods", "pods": {"metric": {"name": f"m{n}"}}} for n in ns],
                },
            )
        ),
    ),
    "pull secrets": kubernetes(one(lambda ns: deployment(pod={"imagePullSecrets": [{"name": f"s{n}"} for n in ns]}))),
    "jobs": kubernetes(
        many(
            lambda n: resource(
                "CronJob",
                f"j{n}",
                "batch/v1",
                spec={
                    "schedule": "* * * * *",
                    "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}},
                },
            )
        )
    ),
    "items of a list": kubernetes(
        one(
            lambda ns: {
                "apiVersion": "v1",
                "kind": "List",
                "items": [resource("ConfigMap", f"c{n}", data={"k": "a"}) for n in ns],
            }
        )
    ),
    "duplicates": kubernetes(many(lambda _: resource("ConfigMap", "c", data={"k": "a"}))),
    "kinds without a meaning": kubernetes(many(lambda n: resource("Role", f"r{n}", "rbac.authorization.k8s.io/v1"))),
    "unknown fields": kubernetes(one(lambda ns: deployment(pod={f"word{n}": "a" for n in ns}))),
    "unknown fields in a list": kubernetes(one(lambda ns: deployment(env=[{"name": f"V{n}", "word": n} for n in ns]))),
    "words of a command": kubernetes(one(lambda ns: deployment(command=[f"w{n}" for n in ns]))),
    "headers of a probe": kubernetes(
        one(
            lambda ns: deployment(
                readinessProbe={"httpGet": {"port": 80, "httpHeaders": [{"name": f"h{n}", "value": "a"} for n in ns]}}
            )
        )
    ),
    "namespaces": kubernetes(
        many(lambda n: deployment(f"w{n}") | {"metadata": {"name": f"w{n}", "namespace": f"n{n}"}})
    ),
    "documents of nothing": kubernetes(many(lambda n: {"a": n})),
}
