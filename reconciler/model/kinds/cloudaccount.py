"""A typed view of a cloud account (docs/platform/fields.md#cloud-account): what rules look at."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View


class Registration(View, frozen=True):
    """How the account is known to its provider; which field is there, the provider decides."""

    role_arn: str = ""
    secret_link: str = ""
    project_id: str = ""


class CloudAccount(Envelope, frozen=True):
    """An account of ``provider``: aws, azure, gcp or ngs."""

    provider: str = ""
    data: Registration = Registration()
