"""A typed view of a cloud account (docs/platform/fields.md#cloud-account), for rules."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View


class Registration(View, frozen=True):
    """The account at its provider, which decides the field that is set."""

    role_arn: str = ""
    secret_link: str = ""
    project_id: str = ""


class CloudAccount(Envelope, frozen=True):
    """An account of ``provider``: aws, azure, gcp or ngs."""

    provider: str = ""
    data: Registration = Registration()
