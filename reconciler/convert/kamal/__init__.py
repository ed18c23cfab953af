"""Converts deploy.yml of Kamal to manifests, by way of a compose project. Pure."""
