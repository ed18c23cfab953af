"""Exchanges whose answers `test_exchanges.py` compares: those of the fake, of the real server, and those recorded."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.requests import (
    APPLY,
    JSON,
    JSON_PATCH,
    METADATA_LIST,
    METADATA_ONLY,
    PATHS,
    STRATEGIC,
    VERSIONS,
    Exchange,
    Object,
    Step,
    apply,
    autoscaler,
    claim,
    config_map,
    container,
    create,
    cron_job,
    delete,
    deployment,
    get,
    job,
    kind_object,
    network_policy,
    page,
    patch,
    pod_template,
    service,
    stateful_set,
    update,
    watch,
)

ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
PORTS = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]
PROBE = {"httpGet": {"port": 80}, "initialDelaySeconds": 0}
FULL = container(
    ports=PORTS,
    env=ENV,
    resources={"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": "1.5", "memory": "1.5Gi"}},
    readinessProbe=PROBE,
    lifecycle={"preStop": {"exec": {"command": ["sleep", "5"]}}},
    volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}, {"name": "conf", "mountPath": "/conf", "readOnly": False}],
    args=[],
    securityContext={"privileged": False},
)
VOLUMES = [{"name": "tmp", "emptyDir": {}}, {"name": "conf", "secret": {"secretName": "s"}}]
FULL_DEPLOYMENT = deployment(
    template=pod_template(FULL, volumes=VOLUMES, serviceAccountName="app", nodeSelector={}, hostNetwork=False),
    replicas=2,
    minReadySeconds=0,
)
SECRET_SOURCE = {"secret": {"secretName": "s"}}
BACKEND = {"service": {"name": "a", "port": {"number": 80}}}
RULE = {"host": "a.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}}
INGRESS = kind_object(
    "Ingress", spec={"ingressClassName": "a", "rules": [RULE], "tls": [{"hosts": ["a.example.com"], "secretName": "s"}]}
)
BINDING = kind_object(
    "RoleBinding",
    roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    subjects=[{"kind": "ServiceAccount", "name": "a", "namespace": "default"}],
)


def sourced(variable: Object, source: Object) -> Object:
    """A Deployment with a variable, and a volume of a source."""
    main = container(env=[variable], volumeMounts=[{"name": "v", "mountPath": "/v"}])
    return deployment(template=pod_template(main, volumes=[{"name": "v", **source}]))


LABELLED = [
    config_map(name, {"labels": {"app": label}}, x=name) for name, label in (("a", "x"), ("b", "y"), ("c", "x"))
]
OWNED = {
    "managedFields": [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]
}

DISCOVERED = sorted(
    {*VERSIONS.values()} - {VERSIONS["Thing"]}
    | {"storage.k8s.io/v1", "authorization.k8s.io/v1", "coordination.k8s.io/v1"}
)
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
THINGS = PATHS["Thing"]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def thing(name: str = "a", metadata: Object | None = None, **spec: Any) -> Object:
    """A custom resource."""
    return kind_object("Thing", name, metadata, spec=spec)


CREATING = {
    "create": [create(config_map(x="1"))],
    "create twice": [create(config_map(x="1")), create(config_map(x="2"))],
    "create with a generated name": [
        create(kind_object("ConfigMap", "", {"generateName": "a-"}, data={"x": "1"})),
    ],
    "create in a namespace that does not exist": [
        Step("POST", "/api/v1/namespaces/none/configmaps", {}, config_map(x="1")),
    ],
    "create with a resourceVersion": [create(config_map("a", {"resourceVersion": "5"}))],
    "create a kind at the path of another": [Step("POST", PATHS["ConfigMap"], {}, kind_object("Secret"))],
    "create with an unknown field, strict": [create(kind_object("ConfigMap", more=1), fieldValidation="Strict")],
    "create with an unknown field": [create(kind_object("ConfigMap", more={"x": 1}, data={"x": "1"}))],
    "create with a deep unknown field, strict": [
        create(deployment(container(imagee="x")), fieldValidation="Strict"),
    ],
    "create with a bad name": [create(config_map("Not_Good"))],
    "create with a bad label": [create(config_map("a", {"labels": {"app": "no spaces"}}))],
    "create a dry run": [create(config_map(x="1"), dryRun="All"), get("ConfigMap")],
    "create a secret with text": [
        create(kind_object("Secret", stringData={"a": "b"}, data={"c": "ZA=="})),
    ],
    "create a namespace": [create(kind_object("Namespace", "NAMESPACE-b"))],
}
DEFAULTS = {
    "defaults of a Deployment": [create(FULL_DEPLOYMENT)],
    "defaults of a Deployment that is applied": [apply(FULL_DEPLOYMENT)],
    "defaults of a StatefulSet": [create(stateful_set())],
    "defaults of a Job": [create(job())],
    "defaults of a CronJob": [create(cron_job())],
    "defaults of a Service": [create(service())],
    "defaults of a headless Service": [create(service(clusterIP="None"))],
    "defaults of a LoadBalancer": [create(service(type="LoadBalancer"))],
    "defaults of an ExternalName": [
        create(kind_object("Service", spec={"type": "ExternalName", "externalName": "example.com"})),
    ],
    "defaults of a HorizontalPodAutoscaler": [
        create(
            kind_object(
                "HorizontalPodAutoscaler",
                spec={
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                    "maxReplicas": 3,
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
                },
            )
        )
    ],
    "defaults of a NetworkPolicy": [
        create(kind_object("NetworkPolicy", spec={"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]})),
        create(kind_object("NetworkPolicy", "b", spec={"podSelector": {"matchLabels": {}}, "egress": [{}]})),
    ],
    "defaults of a PodDisruptionBudget": [
        create(
            kind_object("PodDisruptionBudget", spec={"minAvailable": "50%", "selector": {"matchLabels": {"app": "a"}}})
        )
    ],
    "defaults of a PersistentVolumeClaim": [create(claim("1024Mi"))],
    "defaults of an Ingress": [
        create(kind_object("Ingress", spec={"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}))
    ],
    "defaults of a RoleBinding": [
        create(
            kind_object(
                "RoleBinding",
                roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                subjects=[
                    {"kind": "ServiceAccount", "name": "a", "namespace": "default"},
                    {"kind": "User", "name": "u"},
                ],
            )
        )
    ],
    "defaults of a ServiceAccount": [create(kind_object("ServiceAccount", automountServiceAccountToken=False))],
}
APPLYING = {
    "apply creates, and changes nothing the second time": [
        apply(deployment(replicas=2)),
        apply(deployment(replicas=2)),
    ],
    "apply with the same quantity written otherwise": [
        apply(deployment(container(resources={"limits": {"cpu": "1000m"}}))),
        apply(deployment(container(resources={"limits": {"cpu": "1"}}))),
        apply(deployment(container(resources={"limits": {"cpu": "1000m"}}))),
    ],
    "apply with empty lists and maps": [
        apply(deployment(container(args=[], env=[], ports=[]), replicas=0)),
        apply(deployment(container(args=[], env=[], ports=[]), replicas=0)),
        apply(config_map("b", {"labels": {}, "annotations": {}})),
        apply(config_map("b", {"labels": {}, "annotations": {}})),
    ],
    "apply with null": [apply(deployment(replicas=None)), apply(deployment(replicas=None))],
    "apply removes a field that it no longer has": [
        apply(deployment(container(env=ENV, args=["x"]), replicas=3)),
        apply(deployment(container(env=ENV[:1]))),
        apply(deployment(container())),
    ],
    "apply removes items of maps": [apply(config_map(x="1", y="2")), apply(config_map(x="1"))],
    "apply conflicts with another one": [
        apply(config_map(x="1")),
        apply(config_map(x="2"), "two"),
        apply(config_map(x="1"), "two"),
        apply(config_map(x="3"), "two"),
    ],
    "apply conflicts in several fields of several managers": [
        apply(config_map(x="1", y="1")),
        patch("ConfigMap", {"data": {"z": "1"}}),
        apply(config_map(x="2", y="2", z="2"), "two"),
    ],
    "apply with force": [apply(config_map(x="1")), apply(config_map(x="2"), "two", force="true")],
    "apply conflicts with an update": [
        create(deployment(replicas=1)),
        apply(deployment(replicas=2)),
        apply(deployment(replicas=2), force="true"),
    ],
    "apply without a field of others": [
        apply(deployment(replicas=2)),
        apply(deployment(), "two"),
        apply(deployment()),
        apply(deployment(), "two"),
    ],
    "apply gives up a field that another one owns too": [
        apply(config_map(x="1")),
        apply(config_map(x="1"), "two"),
        apply(config_map()),
        apply(config_map(), "two"),
    ],
    "apply of a container beside an injected one": [
        apply(deployment(container(image="a:1"))),
        patch("Deployment", {"spec": {"template": {"spec": {"containers": [container(name="proxy")]}}}}, STRATEGIC),
        apply(deployment(container(image="a:2"))),
    ],
    "apply orders items of a list": [
        apply(deployment(container(env=ENV))),
        patch(
            "Deployment",
            {"spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "C", "value": "3"}]}]}}}},
            STRATEGIC,
        ),
        apply(deployment(container(env=[{"name": "D", "value": "4"}, *reversed(ENV)]))),
    ],
    "apply with duplicate items": [apply(deployment(container(env=[ENV[0], ENV[0]])))],
    "apply with finalizers and owners": [
        apply(config_map("a", {"finalizers": ["example.com/a"]})),
        apply(config_map("a", {"finalizers": ["example.com/b"]}), "two"),
        apply(config_map("a")),
    ],
    "apply a dry run": [
        apply(config_map(x="1"), dryRun="All"),
        apply(config_map(x="1")),
        apply(config_map(x="2"), dryRun="All"),
        apply(config_map(x="1"), dryRun="All"),
        get("ConfigMap"),
    ],
    "apply without a manager": [
        Step("PATCH", f"{PATHS['ConfigMap']}/a", {}, config_map(x="1"), APPLY),
    ],
    "apply with a field that does not exist": [apply(deployment(container(), more=1))],
    "apply with a value of another type": [apply(deployment(replicas="two"))],
    "apply with managedFields": [apply(config_map("a", OWNED))],
    "apply with another name": [
        Step("PATCH", f"{PATHS['ConfigMap']}/b", {"fieldManager": "one"}, config_map(x="1"), APPLY),
    ],
    "apply with a uid or a resourceVersion": [
        apply(config_map("a", {"uid": "5"})),
        apply(config_map(x="1")),
        apply(config_map("a", {"resourceVersion": "5"}, x="2")),
        apply(config_map("a", {"resourceVersion": "$VERSION2"}, x="2")),
    ],
    "apply of a Service": [
        apply(service()),
        apply(service()),
        apply(service(ports=[{"port": 80, "name": "http"}, {"port": 81, "name": "more"}])),
        apply(service(type="LoadBalancer")),
        apply(service()),
    ],
    "apply of a Service whose type changes": [
        apply(service(type="ClusterIP")),
        apply(service(type="NodePort", ports=[{"port": 80, "nodePort": 30080}])),
        apply(service(type="ClusterIP")),
        apply(kind_object("Service", spec={"type": "ExternalName", "externalName": "example.com"})),
        apply(service(type="ClusterIP")),
    ],
    "apply of ports with two protocols": [
        apply(service(ports=[{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}])),
        apply(service(ports=[{"name": "b", "port": 53, "protocol": "UDP", "targetPort": "dns"}])),
    ],
    "apply of a full Deployment, and again": [apply(FULL_DEPLOYMENT), apply(FULL_DEPLOYMENT)],
    "apply of a StatefulSet, and again": [apply(stateful_set()), apply(stateful_set())],
    "apply of a Job, and again": [apply(job()), apply(job())],
    # The server writes a claim once more at the second apply, whose answer is the same.
    "apply of a claim, and again": [apply(claim()), apply(claim())._replace(shown=False), apply(claim())],
    "apply of a CronJob, and again": [apply(cron_job()), apply(cron_job()), apply(cron_job(suspend=True))],
    "apply of an autoscaler, and again": [apply(autoscaler()), apply(autoscaler()), apply(autoscaler(minReplicas=2))],
    "apply of a NetworkPolicy, and again": [
        apply(network_policy()),
        apply(network_policy()),
        apply(network_policy(ingress=[])),
        apply(network_policy(egress=[])),
    ],
    "apply of a Secret, and again": [
        apply(kind_object("Secret", stringData={"a": "b"}, immutable=True)),
        apply(kind_object("Secret", stringData={"a": "b"}, immutable=True)),
        apply(kind_object("Secret", data={"a": "Yg=="}, immutable=True)),
        apply(kind_object("Secret", data={"a": "Yw=="}, immutable=True)),
    ],
    "apply of a ServiceAccount and a Namespace": [
        apply(kind_object("ServiceAccount", imagePullSecrets=[{"name": "a"}])),
        apply(kind_object("ServiceAccount", imagePullSecrets=[{"name": "b"}])),
        apply(kind_object("Namespace", "NAMESPACE-d", {"labels": {"a": "b"}})),
        apply(kind_object("Namespace", "NAMESPACE-d", {"labels": {"a": "b"}})),
    ],
    "apply of strategy and probes": [
        apply(deployment(container(readinessProbe=PROBE, livenessProbe={"tcpSocket": {"port": 80}}))),
        apply(deployment(container(readinessProbe={"exec": {"command": ["true"]}}), strategy={"type": "Recreate"})),
        patch("Deployment", {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}),
        apply(
            deployment(container(), strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
            force="true",
        ),
        apply(deployment(container())),
    ],
    "apply takes over what a client-side apply left": [
        create(
            {
                **deployment(container(env=ENV)),
                "metadata": {
                    "name": "a",
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
                },
            }
        ),
        apply(deployment(container()), force="true"),
        get("Deployment"),
    ],
    "apply of another source": [
        apply(sourced({"name": "A", "value": "1"}, {"emptyDir": {}})),
        apply(sourced({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, SECRET_SOURCE)),
        apply(sourced({"name": "A", "valueFrom": {"secretKeyRef": {"name": "t", "key": "k"}}}, {"emptyDir": {}})),
    ],
    "apply in a namespace that does not exist": [
        Step("PATCH", "/api/v1/namespaces/none/configmaps/a", {"fieldManager": "one"}, config_map(), APPLY),
        Step(
            "PATCH",
            "/api/v1/namespaces/none/configmaps/a",
            {"fieldManager": "one", "dryRun": "All"},
            config_map(),
            APPLY,
        ),
    ],
    "apply over an update of the same manager": [
        create(config_map(x="1"))._replace(query={"fieldManager": "one"}),
        apply(config_map(x="2")),
        apply(config_map(x="1")),
        apply(config_map()),
    ],
    "apply with a replica count that an autoscaler moves": [
        apply(deployment()),
        patch("Deployment", {"spec": {"replicas": 4}}, subresource="/scale"),
        apply(deployment()),
        apply(deployment(replicas=2)),
        patch("Deployment", {"spec": {"replicas": 4}}, subresource="/scale"),
        apply(deployment(replicas=2)),
        apply(deployment()),
        apply(deployment(replicas=2), force="true"),
    ],
    "apply over an object that was never tracked": [
        create(config_map()),
        patch("ConfigMap", {"data": {"x": "1"}}),
        apply(config_map(x="2")),
        apply(config_map(x="2", y="1"), force="true"),
    ],
    "apply of a PodDisruptionBudget that switches": [
        apply(kind_object("PodDisruptionBudget", spec={"minAvailable": 1})),
        apply(kind_object("PodDisruptionBudget", spec={"maxUnavailable": 1})),
        patch("PodDisruptionBudget", {"spec": {"minAvailable": 1}}),
    ],
    "apply of another port": [
        apply(service(ports=[{"port": 80, "targetPort": 8080}])),
        apply(service(ports=[{"port": 81, "targetPort": 8080}])),
        apply(service(ports=[{"port": 81}])),
    ],
    "apply of an Ingress, and again": [apply(INGRESS), apply(INGRESS)],
    "apply of bindings, and again": [apply(BINDING), apply(BINDING), patch("RoleBinding", {"roleRef": {"name": "b"}})],
    "apply of long names": [apply(config_map("a" * 254)), apply(config_map("a", {"labels": {"x": "y" * 64}}))],
    "apply with a label and a manager that are too long": [
        apply(config_map("a", {"labels": {"a/b/c": "x"}})),
        apply(config_map(), "m" * 129),
    ],
    "apply with strict validation": [
        apply(deployment(), fieldValidation="Strict"),
        apply(kind_object("ConfigMap", data={"x": "1"}, more=1), fieldValidation="Strict"),
    ],
    "apply of status": [
        apply(deployment()),
        apply(kind_object("Deployment", status={"replicas": 1, "observedGeneration": 1}), "two", "/status"),
        apply(deployment()),
    ],
    "apply with status in the main resource": [
        apply({**deployment(), "status": {"replicas": 1}}),
    ],
}
CHANGING = {
    "update": [create(config_map(x="1")), update(config_map(x="2")), update(config_map(x="2"))],
    "update what does not exist": [update(config_map(x="1"))],
    "update with an old resourceVersion": [
        create(config_map(x="1")),
        update(config_map(x="2")),
        update(config_map("a", {"resourceVersion": "$VERSION1"}, x="3")),
        update(config_map("a", {"resourceVersion": "$VERSION2"}, x="3")),
    ],
    "update with another uid": [create(config_map(x="1")), update(config_map("a", {"uid": "5"}, x="1"))],
    "update a PodDisruptionBudget without a version": [
        create(kind_object("PodDisruptionBudget", spec={"minAvailable": 1})),
        update(kind_object("PodDisruptionBudget", spec={"minAvailable": 2})),
        apply(kind_object("PodDisruptionBudget", spec={"minAvailable": 2})),
    ],
    "update with another name": [
        create(config_map()),
        Step("PUT", f"{PATHS['ConfigMap']}/a", {}, config_map("b")),
    ],
    "generation changes with the spec only": [
        create(deployment(replicas=1)),
        patch("Deployment", {"metadata": {"labels": {"x": "1"}}}),
        patch("Deployment", {"spec": {"replicas": 2}}),
        patch("Deployment", {"status": {"replicas": 2, "observedGeneration": 2}}, subresource="/status"),
        patch("Deployment", {"status": {"replicas": 3}}),
    ],
    "patch by a merge": [create(config_map(x="1", y="2")), patch("ConfigMap", {"data": {"x": None, "z": "3"}})],
    "patch by JSON": [
        create(config_map(x="1")),
        patch(
            "ConfigMap",
            [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "add", "path": "/data/y", "value": "2"}],
            JSON_PATCH,
        ),
        patch("ConfigMap", [{"op": "remove", "path": "/data/x"}], JSON_PATCH),
        patch("ConfigMap", [{"op": "test", "path": "/data/y", "value": "1"}], JSON_PATCH),
    ],
    "patch by a strategic merge": [
        create(deployment(container(env=ENV))),
        patch(
            "Deployment",
            {
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "env": [{"name": "B", "$patch": "delete"}, {"name": "A", "value": "3"}],
                                }
                            ]
                        }
                    }
                }
            },
            STRATEGIC,
        ),
    ],
    "patch what does not exist": [patch("ConfigMap", {"data": {"x": "1"}})],
    "patch in an unknown format": [create(config_map()), patch("ConfigMap", {}, JSON)],
    "managers are rewritten": [
        create(config_map(x="1")),
        patch("ConfigMap", {"metadata": OWNED}),
        apply(config_map(y="2")),
        patch("ConfigMap", {"metadata": {"managedFields": [{}]}}),
    ],
    "scale": [
        create(deployment(replicas=1)),
        get("Deployment", "a", "/scale"),
        patch("Deployment", {"spec": {"replicas": 4}}, subresource="/scale"),
        get("Deployment"),
    ],
}
IMMUTABLE = {
    "immutable selector of a Deployment": [
        create(deployment()),
        patch(
            "Deployment",
            {"spec": {"selector": {"matchLabels": {"app": "b"}}, "template": {"metadata": {"labels": {"app": "b"}}}}},
        ),
    ],
    "immutable fields of a StatefulSet": [
        create(stateful_set()),
        patch("StatefulSet", {"spec": {"serviceName": "b"}}),
        patch("StatefulSet", {"spec": {"podManagementPolicy": "Parallel"}}),
        patch("StatefulSet", {"spec": {"volumeClaimTemplates": []}}),
        patch(
            "StatefulSet",
            {"spec": {"selector": {"matchLabels": {"app": "b"}}, "template": {"metadata": {"labels": {"app": "b"}}}}},
        ),
        patch("StatefulSet", {"spec": {"replicas": 3}}),
    ],
    "immutable template of a Job": [
        create(job()),
        patch("Job", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}}),
        patch("Job", {"spec": {"parallelism": 2}}),
    ],
    "immutable address of a Service": [create(service()), patch("Service", {"spec": {"clusterIP": "10.96.77.77"}})],
    "immutable Secret": [
        create(kind_object("Secret", data={"a": "YQ=="}, immutable=True)),
        patch("Secret", {"data": {"a": "Yg=="}}),
        patch("Secret", {"immutable": False}),
        patch("Secret", {"metadata": {"labels": {"x": "1"}}}),
        patch("Secret", {"type": "other"}),
    ],
    "immutable kind of a Service": [
        create(service()),
        patch("Service", {"spec": {"clusterIP": "None"}}),
        update(service()),
    ],
    "invalid Secret": [
        create(kind_object("Secret", type="kubernetes.io/dockerconfigjson")),
        create(kind_object("Secret", data={"a b": "YQ=="})),
        create(kind_object("Secret", data={"a": "not base64"})),
    ],
    "immutable claim": [
        create(claim()),
        patch("PersistentVolumeClaim", {"spec": {"accessModes": ["ReadWriteMany"]}}),
        patch("PersistentVolumeClaim", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
    ],
    "invalid Deployment": [
        create(deployment(template=pod_template(container(), labels={"app": "b"}))),
        create(deployment({"name": "main"}, {"name": "UPPER", "image": "x"})),
        create(deployment(container(volumeMounts=[{"name": "none", "mountPath": "/x"}]))),
        create(deployment(container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}))),
        create(deployment(template=pod_template(container(), restartPolicy="Never"))),
        create(deployment(replicas=-1)),
    ],
    "invalid Service": [
        create(service(ports=[])),
        create(service(ports=[{"port": 80}, {"port": 81}])),
        create(service(ports=[{"port": 0}])),
        create(service(type="Other")),
    ],
    "invalid others": [
        create(claim(accessModes=[])),
        create(kind_object("CronJob", spec={"schedule": "", "jobTemplate": {"spec": job()["spec"]}})),
        create(job(template=pod_template(container()))),
        create(kind_object("Namespace", "a.b")),
    ],
    "value of another type": [create(deployment(replicas="two")), create(config_map(x=1))],  # type: ignore[arg-type]
}
READING = {
    "get what does not exist": [get("ConfigMap"), get("Deployment")],
    "unknown resource": [
        Step("GET", "/apis/apps/v1/namespaces/NAMESPACE/things"),
        Step("GET", "/apis/apps/v1/things"),
        Step("GET", "/apis/apps/v2"),
        Step("GET", "/apis/none.example.com"),
        Step("GET", "/api/v1/namespaces/NAMESPACE/things/a"),
        Step("GET", f"{PATHS['Deployment']}/a/more"),
        Step("POST", "/apis/apps/v1/namespaces/NAMESPACE/things", {}, config_map()),
        Step("GET", "/apis/none.example.com/v1/things"),
        Step("GET", "/other"),
    ],
    "method that a resource does not have": [
        Step("POST", f"{PATHS['ConfigMap']}/a", {}, config_map()),
        Step("DELETE", "/api/v1/namespaces"),
    ],
    "list with selectors": [
        *map(create, LABELLED),
        page("ConfigMap", labelSelector="app=x"),
        page("ConfigMap", labelSelector="app!=x"),
        page("ConfigMap", labelSelector="app in (y,z)"),
        page("ConfigMap", labelSelector="!app"),
        page("ConfigMap", fieldSelector="metadata.name=b"),
        page("ConfigMap", fieldSelector="data.x=b"),
        page("ConfigMap", labelSelector="app=="),
    ],
    "list of pages": [
        *map(create, LABELLED),
        page("ConfigMap", limit="2"),
        page("ConfigMap", limit="2", **{"continue": "$CONTINUE"}),
    ],
    "discovery": [
        Step("GET", "/api"),
        *(Step("GET", f"/apis/{version}" if "/" in version else f"/api/{version}") for version in DISCOVERED),
    ],
    "list with a bad token": [page("ConfigMap", limit="2", **{"continue": "nonsense"})],
    "list of another version": [
        create(LABELLED[0]),
        create(LABELLED[1]),
        page("ConfigMap", resourceVersion="0"),
        page("ConfigMap", resourceVersion="$VERSION1", resourceVersionMatch="Exact"),
        page("ConfigMap", resourceVersion="$VERSION1", resourceVersionMatch="NotOlderThan"),
        page("ConfigMap", resourceVersion="nonsense"),
    ],
    "metadata only": [
        create(LABELLED[0]),
        get("ConfigMap")._replace(accept=METADATA_ONLY),
        page("ConfigMap")._replace(accept=METADATA_LIST),
        watch("ConfigMap", 1)._replace(accept=METADATA_ONLY),
    ],
    "list of all namespaces": [
        create(config_map("a", {"labels": {"app": "NAMESPACE"}})),
        Step("GET", "/api/v1/configmaps", {"labelSelector": "app=NAMESPACE"}),
    ],
    "watch from a list": [
        page("ConfigMap"),
        create(LABELLED[0]),
        patch("ConfigMap", {"data": {"x": "2"}}),
        delete("ConfigMap"),
        watch("ConfigMap", 3, resourceVersion="$VERSION1"),
    ],
    "watch resumed": [
        create(LABELLED[0]),
        create(LABELLED[1]),
        watch("ConfigMap", 1, resourceVersion="$VERSION1"),
    ],
    "watch with a selector": [
        page("ConfigMap"),
        create(LABELLED[0]),
        patch("ConfigMap", {"metadata": {"labels": {"app": "y"}}}),
        patch("ConfigMap", {"metadata": {"labels": {"app": "x"}}}),
        watch("ConfigMap", 3, resourceVersion="$VERSION1", labelSelector="app=x"),
    ],
    "watch without a version": [create(LABELLED[0]), watch("ConfigMap", 1)],
    "watch with initial events": [
        create(LABELLED[0]),
        watch(
            "ConfigMap", 2, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
        ),
    ],
    "watch of one object": [
        create(LABELLED[0]),
        create(LABELLED[1]),
        watch("ConfigMap", 1, fieldSelector="metadata.name=b"),
    ],
}
DELETING = {
    "delete": [create(config_map()), delete("ConfigMap"), delete("ConfigMap")],
    "delete a Deployment": [create(deployment()), delete("Deployment")],
    "delete a Deployment in the foreground": [
        create(deployment()),
        delete("Deployment", body={"propagationPolicy": "Foreground"}),
        delete("Deployment"),
    ],
    "delete a Job": [create(job()), delete("Job")],
    "delete a Service": [create(service()), delete("Service")],
    "delete a claim": [create(claim()), delete("PersistentVolumeClaim")],
    "delete with preconditions": [
        create(config_map()),
        delete("ConfigMap", body={"preconditions": {"uid": "5"}}),
        delete("ConfigMap", body={"preconditions": {"resourceVersion": "5"}}),
        delete("ConfigMap", body={"preconditions": {"uid": "$UID1", "resourceVersion": "$VERSION1"}}),
    ],
    "delete with a finalizer": [
        create(config_map("a", {"finalizers": ["example.com/a"]})),
        delete("ConfigMap"),
        delete("ConfigMap"),
        patch("ConfigMap", {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}),
        apply(config_map(x="1")),
        patch("ConfigMap", {"metadata": {"finalizers": None}}),
        get("ConfigMap"),
    ],
    "delete a dry run": [create(config_map()), delete("ConfigMap", dryRun="All"), get("ConfigMap")],
    "delete a collection": [
        *map(create, LABELLED),
        Step("DELETE", PATHS["ConfigMap"], {"labelSelector": "app=x"}),
        page("ConfigMap"),
    ],
    "delete a namespace": [
        create(kind_object("Namespace", "NAMESPACE-c")),
        delete("Namespace", "NAMESPACE-c"),
        Step("POST", "/api/v1/namespaces/NAMESPACE-c/configmaps", {}, config_map()),
        delete("Namespace", "NAMESPACE-c"),
    ],
}

CUSTOM = {
    "custom resource": [
        create(thing(x=1)),
        Step("POST", DEFINITIONS, {}, DEFINITION, shown=False),
        Step("GET", THINGS, until=200),
        create(thing(x={"y": [1, 2]}, z=None)),
        create(kind_object("Thing", "b", spec={"x": 1}, status={"y": 1}, more=1), fieldValidation="Strict"),
        page("Thing"),
        apply(thing("c", x={"y": [1, 2], "z": 1})),
        apply(thing("c", x={"y": [1, 2], "z": 1})),
        apply(thing("c", x={"y": [1], "z": 1}), "two"),
        apply(thing("c", x={"y": [1, 2]})),
        update(thing("c", x=2)),
        update(thing("c", {"resourceVersion": "$VERSION7"}, x=2)),
        patch("Thing", {"spec": {"x": 2}}, STRATEGIC),
        patch("Thing", {"spec": {"x": 2}}),
        patch("Thing", {"status": {"x": 2}}),
        patch("Thing", {"status": {"x": 2}, "spec": {"x": 3}}, subresource="/status"),
        apply(kind_object("Thing", "a", status={"y": 1}), "two", "/status"),
        watch("Thing", 1, resourceVersion="1"),
        watch("Thing", 1, fieldSelector="metadata.name=a"),
        delete("Thing"),
        Step("GET", "/apis/example.com/v1"),
        Step("DELETE", f"{DEFINITIONS}/things.example.com", shown=False),
        Step("GET", THINGS, until=404, shown=False),
    ],
}

EXCHANGES = [
    Exchange(name, tuple(steps))
    for group in (CREATING, DEFAULTS, APPLYING, CHANGING, IMMUTABLE, READING, DELETING, CUSTOM)
    for name, steps in group.items()
]
