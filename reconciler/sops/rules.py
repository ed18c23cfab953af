"""What can be wrong with secrets in files: encrypted ones, plain ones, and those that lead to a file of the host."""

from __future__ import annotations

from reconciler.model.finding import Severity
from reconciler.model.rule import Rule, error_rule
from reconciler.sops.result import KEY_WRONG, LOCKED, MAC_BROKEN, METADATA

PLAIN_TEXT, ENCRYPTED_KIND = "secret-plain-text", "encrypted-kind"
FILE_MISSING, FILE_UNSAFE = "secret-file-missing", "secret-file-unsafe"


RULES = (
    Rule(
        PLAIN_TEXT,
        Severity.WARNING,
        "A secret in Git is encrypted, or leads to a file of the host.",
        "Whoever can read the repository, a fork or a backup of it reads the secret, and its history keeps it. "
        "With `secrets: {policy: encrypted-only}` in the settings this is an error.",
        "docs/manifests.md#encrypted-secrets",
    ),
    Rule(
        LOCKED,
        Severity.NOTICE,
        "The values of an encrypted secret are looked at only where an identity opens them.",
        "Its name and its keys are known as far as they are not encrypted, so links to it are checked all the same. "
        "What is wrong with its values is found where the identity is.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        KEY_WRONG,
        "A secret is encrypted for the identity that the settings name.",
        "Otherwise nobody on this host can open it, and what reads it would get nothing.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        MAC_BROKEN,
        "An encrypted document is as it was when it was encrypted.",
        "Its MAC is over every value, also those that can be read: one that was changed, moved, added or taken out by "
        "hand may be a mistake, a merge gone wrong, or an attack.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        METADATA,
        "What stands under `sops` is what SOPS writes there.",
        "Without it nothing says who can open the document and whether it is whole.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        ENCRYPTED_KIND,
        "Only secrets have encrypted values.",
        "What manifests of other kinds say stands in plans, in the status and in the records for all to read; "
        "encrypting it in Git would only look as if it were safe. Put it into a secret and refer to that.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        FILE_MISSING,
        "A file or credential that a secret leads to is there and holds text.",
        "What reads the secret would get nothing.",
        "docs/manifests.md#secrets-on-the-host",
    ),
    error_rule(
        FILE_UNSAFE,
        "A file that a secret leads to lies below the directory that the settings give to its source, and nobody but "
        "its owner, root or the daemon's user, can read it; a credential is one that they give to it.",
        "Otherwise everybody on the host could read the secret, or whoever can commit could read any file of the host.",
        "docs/manifests.md#secrets-on-the-host",
    ),
)
"""Rules about secrets that no view shows: they are judged by the file itself."""
