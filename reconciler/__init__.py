"""A GitOps daemon: a commit of manifests becomes recorded, applied state."""

__version__ = "0.1.0"
