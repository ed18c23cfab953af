"""A control plane on loopback: etcd, the API server, the controllers and the scheduler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.kubernetes.cluster.build import NEWEST, build_program
from tests.kubernetes.cluster.client import read_kubeconfig
from tests.kubernetes.cluster.component import Component
from tests.kubernetes.cluster.credentials import (
    ISSUER,
    encode_base64,
    sign_token,
    user_by_certificate,
    write_files,
    write_kubeconfig,
    write_serving_pair,
)
from tests.kubernetes.cluster.definitions import Addition, describe_definition
from tests.support.processes import free_ports

START_SECONDS = 90.0
"""What a start may take on a busy machine."""


class Cluster:
    """A control plane that runs; its administrator is the user ``admin``.

    ``flags`` adds flags to components by their names: ``{"kube-apiserver": ["--v=4"]}``.
    """

    def __init__(self, folder: Path, minor: str = NEWEST, flags: Mapping[str, Sequence[str]] | None = None) -> None:
        program = build_program(minor)
        self.minor, self.version, self.folder = minor, program.version, folder
        self._signer = write_files(folder)
        [port] = free_ports(1)
        self._program = program.path
        self.url = f"https://127.0.0.1:{port}"
        self.kubeconfig = self.write_kubeconfig("admin", self._file_user("admin"))
        added = flags or {}
        own = {
            "etcd": [f"--folder={folder}/etcd"],
            "kube-apiserver": _api_server_flags(folder, port),
            "kube-controller-manager": _controller_flags(folder, self.kubeconfig),
            "kube-scheduler": _scheduler_flags(folder, self.kubeconfig),
        }
        (folder / "etcd").mkdir()
        self.components = {
            name: Component(program.path, name, [*listed, *added.get(name, ())], folder) for name, listed in own.items()
        }
        self.api = self.client_of(self.kubeconfig)
        """Requests of the administrator."""

    @property
    def api_server(self) -> Component:
        """The component that tests stop, start and pause."""
        return self.components["kube-apiserver"]

    def start(self) -> None:
        """Start all components, and return once they work."""
        for name in ("etcd", "kube-apiserver"):
            self.components[name].start()
        self.wait_until_ready()
        for name in ("kube-controller-manager", "kube-scheduler"):  # they give up on a server that is not ready in 10 s
            self.components[name].start()
        # The controllers answer: they make this account in each namespace.
        self.wait_for(lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default").is_success)

    @contextmanager
    def stopped_api_server(self) -> Iterator[None]:
        """The API server is killed; it starts with the end of the block, however that ends, and is ready then."""
        self.api_server.kill()
        try:
            yield
        finally:
            self.api_server.start()
            self.wait_until_ready()

    @contextmanager
    def expired_certificate(self) -> Iterator[None]:
        """The API server has a certificate that has ended, until the block ends; both take it a moment."""
        self.renew_certificate(-1.0)
        try:
            yield
        finally:
            self.renew_certificate()

    def stop(self) -> None:
        """End all components; nothing of them is used again."""
        self.api.close()
        for component in self.components.values():
            component.kill()

    def wait_until_ready(self) -> None:
        """Return once the API server answers that it is ready."""
        self.wait_for(lambda: self.api.get("/readyz").is_success)

    def wait_for(self, question: Any, what: str = "", seconds: float = START_SECONDS) -> Any:
        """The first true answer, asked again and again; AssertionError where there is none or a component ended."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = question()
            except httpx2.TransportError:
                answer = None
            if answer:
                return answer
            for component in self.components.values():
                component.check()
            assert time.monotonic() < deadline, f"in {seconds:.0f} s never: {what or question}"
            time.sleep(0.02)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change ``objects`` by server-side apply, as the field manager ``test``."""
        for item in objects:
            answer = self.api.patch(
                self.path_of(item),
                params={"fieldManager": "test", "force": "true"},
                headers={"Content-Type": "application/apply-patch+yaml"},
                json=item,
            )
            assert answer.is_success, answer.text

    def install(self, *additions: Addition) -> None:
        """Add kinds, and return once they are served."""
        self.apply(*(describe_definition(addition) for addition in additions))
        for addition in additions:
            path = f"/apis/{addition.group}/{addition.version}/{addition.plural}"
            self.wait_for(lambda path=path: self.api.get(path).is_success, path)

    def path_of(self, item: Mapping[str, Any]) -> str:
        """Where the server has an object."""
        group, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        [plural] = [
            each["name"]
            for each in self.api.get(root).raise_for_status().json()["resources"]
            if each["kind"] == kind and "/" not in each["name"]
        ]
        namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        return f"{root}{namespace}/{plural}/{metadata['name']}"

    def kubectl(self, *words: str, code: int = 0, config: Path | None = None) -> str:
        """What kubectl of the same version prints, as the administrator or as the user of ``config``."""
        with self.start_kubectl(*words, config=config, stdin=subprocess.DEVNULL) as process:
            out, err = process.communicate(timeout=60.0)
        assert process.returncode == code, err
        return out

    def kubectl_command(self, config: Path | None = None) -> list[str]:
        """The words that start kubectl, as the administrator or as the user of ``config``."""
        return [str(self._program), "kubectl", f"--kubeconfig={config or self.kubeconfig}"]

    @contextmanager
    def start_kubectl(
        self, *words: str, config: Path | None = None, stdin: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[str]]:
        """A kubectl that runs, until the block ends."""
        process = subprocess.Popen(
            [*self.kubectl_command(config), *words],
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def write_kubeconfig(self, name: str, user: dict[str, str]) -> Path:
        """Write a kubeconfig whose user entry is ``user``, and return its path."""
        return write_kubeconfig(self.folder / f"{name}.kubeconfig", self.url, user)

    def client_of(self, kubeconfig: Path) -> httpx2.Client:
        """A client that is who ``kubeconfig`` proves; it sends no token."""
        url, trust = read_kubeconfig(kubeconfig)
        return httpx2.Client(base_url=url, verify=trust, timeout=30.0, trust_env=False)

    def kubeconfig_of_token(self, name: str, token: str) -> Path:
        """A kubeconfig of whom ``token`` proves; empty: without anything that proves a user."""
        return self.write_kubeconfig(f"token-{name}", {"token": token} if token else {})

    def kubeconfig_of(self, user: str, *groups: str, seconds: float = 86_400.0) -> Path:
        """A kubeconfig of ``user``, by a certificate that is valid for ``seconds``."""
        return self.write_kubeconfig(f"user-{user}", user_by_certificate(user, *groups, seconds=seconds))

    def token_of(self, namespace: str, account: str, seconds: float = 3600.0) -> str:
        """A token of a service account that is valid for ``seconds``."""
        answer = self.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}").raise_for_status()
        return sign_token(self._signer, answer.json(), seconds)

    def renew_certificate(self, seconds: float = 86_400.0) -> None:
        """Give the API server a certificate that ends in ``seconds`` (below 0: that has ended); it takes a moment."""
        write_serving_pair(self.folder, seconds)

    def compact(self) -> None:
        """Let the store forget all versions but the newest: a list continued from an older one is expired (410).

        A watch from an older one is expired after a restart of the API server, which serves it from memory before.
        """
        transport = httpx2.HTTPTransport(uds=str(self.folder / "etcd" / "clients"))
        with httpx2.Client(base_url="http://etcd", transport=transport) as etcd:
            revision = etcd.post("/v3/kv/range", json={"key": "AA=="}).raise_for_status().json()["header"]["revision"]
            etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}).raise_for_status()

    def _file_user(self, name: str) -> dict[str, str]:
        certificate, key = (encode_base64((self.folder / f"{name}.{kind}").read_bytes()) for kind in ("crt", "key"))
        return {"client-certificate-data": certificate, "client-key-data": key}


def _api_server_flags(folder: Path, port: int) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--etcd-servers=unix://{folder}/etcd/clients",
        "--endpoint-reconciler-type=none",  # an address of loopback is no endpoint
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        f"--tls-cert-file={folder}/serving.crt",
        f"--tls-private-key-file={folder}/serving.key",
        f"--client-ca-file={folder}/ca.crt",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={folder}/service-accounts.crt",
        f"--service-account-signing-key-file={folder}/service-accounts.key",
        f"--kubelet-client-certificate={folder}/kubelet-client.crt",
        f"--kubelet-client-key={folder}/kubelet-client.key",
        f"--kubelet-certificate-authority={folder}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={folder}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder}/front-proxy.crt",
        f"--proxy-client-key-file={folder}/front-proxy.key",
        # Sessions reach the kubelets of the tests as clients open them: over WebSocket, not over SPDY. What is
        # compacted expires at once: with snapshots, pages of a list are served for 15 s more.
        "--feature-gates=TranslateStreamCloseWebsocketRequests=false,ListFromCacheSnapshot=false",
    ]


def _controller_flags(folder: Path, kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={folder}/service-accounts.key",
        f"--root-ca-file={folder}/ca.crt",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--node-monitor-period=1s",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
        "--pvclaimbinder-sync-period=1s",
    ]


def _scheduler_flags(folder: Path, kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


@contextmanager
def running_cluster(minor: str = NEWEST, **flags: Sequence[str]) -> Iterator[Cluster]:
    """A control plane of the version ``minor``, which ends with the block and leaves nothing."""
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    cluster = Cluster(folder, minor, {name.replace("_", "-"): listed for name, listed in flags.items()})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
