"""The first session of docs/kubernetes.md works as printed, here on the fake API server."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docs.generate.kubernetes import REASONS
from reconciler.reasons import Reason
from tests.docs.shell import blocks, typed
from tests.kubernetes.api_server import fake_api_server
from tests.project.tree import ROOT

KUBECTL = """#!/bin/sh
# Stands for kubectl: the session takes only the kubeconfig from it.
case "$1" in config) cat "$FAKE_KUBECONFIG" ;; *) echo "$@" ;; esac
"""


def read_session() -> str:
    """The commands of the first session."""
    (session,) = blocks((ROOT / "docs" / "kubernetes.md").read_text(), "sh session")
    return session


def test_the_first_session_deploys_a_workload(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "kubectl").write_text(KUBECTL)
    (tools / "kubectl").chmod(0o755)
    path = f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin"
    with fake_api_server(tmp_path / "server") as server:
        server.run_controllers()
        printed = typed(read_session(), tmp_path, tmp_path, PATH=path, FAKE_KUBECONFIG=str(server.kubeconfig))
    assert "workload/shop/web" in printed
    assert "Healthy" in printed


def test_the_page_explains_every_refusal_of_a_cluster() -> None:
    code = "".join(path.read_text() for path in (ROOT / "reconciler/engines/kubernetes/client").glob("*.py"))
    named = {Reason[name] for name in re.findall(r"\bReason\.([A-Z_]+)", code)}
    of_commands = {Reason.NOT_FOUND, Reason.EXEC_FAILED, Reason.NOT_RUNNING}
    assert Reason.QUOTA_EXCEEDED in named
    assert named - set(REASONS) - of_commands == set()
