"""Starts a cluster by hand, prints its kubeconfig, and ends it with Ctrl-C: `--version`, `--pace`, `--nodes`."""

from __future__ import annotations

import argparse
import signal

from tests.kubernetes.cluster.build import MODULE_FILES, NEWEST
from tests.kubernetes.cluster.control_plane import running_cluster
from tests.kubernetes.cluster.kubelet import Kubelet


def main() -> None:
    """Run a cluster until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=[*MODULE_FILES], default=NEWEST)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds for one second of a manifest")
    parser.add_argument("--nodes", type=int, default=2)
    options = parser.parse_args()
    ends = {signal.SIGINT, signal.SIGTERM}
    with running_cluster(options.version) as cluster:
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # now: components would inherit it, and the kubelet must
        names = tuple(f"node-{number}" for number in range(options.nodes))
        kubelet = Kubelet(cluster.kubeconfig, names, options.pace)
        kubelet.start()
        print(f"Kubernetes {cluster.version} at {cluster.url}. Use it, and end it with Ctrl-C:")
        print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
        signal.sigwait(ends)
        kubelet.stop()


if __name__ == "__main__":
    main()
