"""Rules for secrets in files: encrypted, in plain text, and with references to files of the host."""

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
        "A secret in Git is encrypted, or refers to a file of the host.",
        "Everyone who can read the repository, a fork or a backup reads the secret, and the history keeps it. "
        "With `secrets: {policy: encrypted-only}` in the settings this is an error.",
        "docs/manifests.md#encrypted-secrets",
    ),
    Rule(
        LOCKED,
        Severity.NOTICE,
        "The values of an encrypted secret are checked only where an identity decrypts them.",
        "Links to it are checked as far as its name and keys are not encrypted. Faults in its values are found where "
        "the identity is.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        KEY_WRONG,
        "A secret is encrypted for the identity that the settings name.",
        "Otherwise this host cannot decrypt it, and containers that use it get no value.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        MAC_BROKEN,
        "An encrypted document is unchanged since it was encrypted.",
        "Its MAC covers every value, plain ones too. A value that was changed, moved, added or removed by hand may be "
        "a mistake, a bad merge, or an attack.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        METADATA,
        "The mapping `sops` is as SOPS writes it.",
        "Without it, the document can be neither decrypted nor verified.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        ENCRYPTED_KIND,
        "Only secrets have encrypted values.",
        "Fields of other kinds are shown in plans and in the status, and stored in the records, so encryption in Git "
        "would not protect them. Put the value into a secret and refer to that.",
        "docs/manifests.md#encrypted-secrets",
    ),
    error_rule(
        FILE_MISSING,
        "A file or credential that a secret refers to exists and contains text.",
        "Otherwise containers that use the secret get no value.",
        "docs/manifests.md#secrets-on-the-host",
    ),
    error_rule(
        FILE_UNSAFE,
        "A file that a secret refers to is below the directory that the settings assign to the source, and only its "
        "owner, root and the daemon's user can read it; a credential is one that the settings assign to the source.",
        "Otherwise every user of the host could read the secret, or a commit could read any file of the host.",
        "docs/manifests.md#secrets-on-the-host",
    ),
)
"""Rules that are checked on the file itself, since no typed view shows what they need."""
