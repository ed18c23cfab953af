"""The engine of a location on a real cluster, by an account with the rights of the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reconciler.engines.protocol import Result
from tests.engines.kubernetes.engine_kit import WEB, EngineHarness
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.rights import give_rights


class RealHarness(EngineHarness):
    """The engine on ``cluster``, in namespaces of one test."""

    def __init__(self, path: Path, cluster: Cluster, prefix: str, **options: Any) -> None:
        super().__init__(path, give_rights(cluster), namespace_prefix=prefix, **options)
        self.cluster = cluster
        self.image = 1
        self.space = f"{prefix}shop"

    def kubectl(self, *words: str) -> str:
        """The output of kubectl in the namespace."""
        return self.cluster.kubectl("--namespace", self.space, *words)

    def versions(self) -> dict[str, str]:
        """The versions of all objects that are applied, and the uids of pods."""
        kinds = "deployments,statefulsets,services,secrets,serviceaccounts,networkpolicies"
        form = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid}/{.metadata.generation}{'\\n'}{end}"
        lines = self.kubectl("get", f"{kinds},pods", "--output", form).splitlines()
        return dict(line.split() for line in lines)

    def start_web(self) -> None:
        """Apply the workload, and wait for its health."""
        assert self.apply_web().result is Result.APPLIED
        self.wait_for_health()

    def has_drift(self) -> bool:
        """Whether the workload is missing, or is not as it was applied."""
        seen = self.see().get(WEB)
        return seen is None or seen.digest == ""

    def assert_no_drift(self, version: int = 1) -> None:
        """The digest is observed."""
        self.until(lambda: self.see_web().digest == f"digest-{version}", "the digest is seen")
