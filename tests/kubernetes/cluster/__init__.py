"""A real Kubernetes control plane on this machine, built from Go modules, with kubelets that run no containers.

`python -m tests.kubernetes.cluster` starts one by hand and prints its kubeconfig.
"""
