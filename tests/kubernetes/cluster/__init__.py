"""A real Kubernetes control plane on this machine, built from Go modules, with kubelets that run no containers.

By hand, until Ctrl-C (`--version 1.34` for the older one; `--pace 1` where a second of a manifest is one)::

    .venv/bin/python -m tests.kubernetes.cluster

In a test, ``cluster`` and ``kubelet`` are fixtures for each version, ``newest_cluster`` for one, and ``namespace`` is
the test's own. Or, with flags for a component::

    with running_cluster("1.37", kube_apiserver=["--max-requests-inflight=5"]) as cluster:
        kubelet = Kubelet(cluster.kubeconfig)
        kubelet.start()

Containers run until a script lets them do otherwise (`scripts.py`), those of Jobs end with 0. A script is set by the
test (`Kubelet.set_script`), or the container brings it in the variable ``TEST_SCRIPT``: ``exit=3 exit_after=0.5``.
"""
