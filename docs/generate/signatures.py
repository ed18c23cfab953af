"""docs/signatures.md: how signed commits and tags are asked for, and how keys come and go."""

from __future__ import annotations

TEXT = """\
# Signatures

With `verify` a source takes only what a trusted key has signed. A person who can push to the repository, or sits
between it and this host, then still cannot have anything applied.

```yaml
sources:
  - name: main
    url: https://git.example.com/ops/manifests.git
    branch: main
    verify:
      signed: commit                                  # or history, or tag
      allowedSigners: /etc/reconciler/allowed_signers # ssh keys
      revokedKeys: /etc/reconciler/revoked_keys
      gpgKeyring: /etc/reconciler/signers.asc         # OpenPGP keys
```

`git` 2.35 or newer is needed, with `ssh-keygen` for ssh signatures and `gpg` for OpenPGP ones.

## What has to be signed

* `commit`: the newest commit. Its signer vouches for all that the repository holds at that commit, whoever made the
  commits before; so the person who merges signs.
* `history`: every commit since the last good revision, merged branches too; of a source that was never loaded, the
  newest alone. One unsigned commit stops the branch until it is rewritten without it. Parents are read from the
  commits themselves: grafts, replacements and shallow files of the repository have no say. Of a shallow clone, commits
  are taken as far as it reaches back to the last good revision.
* `tag`: the annotated tag that the source stays at (`tag`): a release, signed under this name.

Every revision is checked before a file of it is read, those that `plan --revision` and `rollback` name too. What is not
signed, signed by another key, altered, expired or revoked is refused: the condition `SourceReachable` turns false with
the reason `SourceUnverified`, an event tells it, and the last good revision stays applied. With the next good commit it
goes on. A verdict is remembered by the id of the commit and asked for again when one of the files changes, so that
a poll costs nothing; the files are read at every look and need no restart.

A signature speaks for a content, not for a branch: who may sign for a test branch should not be in the file of a
production source. A branch that goes back to an older signed commit is refused as rewritten history (`allowRewrite`).

## ssh keys

`allowedSigners` has a line for each key: who, options, the key. Times are those of the host unless they end in Z.

    ada@example.com namespaces="git" ssh-ed25519 AAAA…
    bob@example.com namespaces="git",valid-after="20260101Z",valid-before="20270101Z" ssh-ed25519 AAAA…
    *@example.com cert-authority,namespaces="git" ssh-ed25519 AAAA…

A key with `valid-before` counts for commits that were made before, by the commit's own time: what was signed in time
stays good. The committer writes that time. So against a key that was stolen `valid-before` does not help:
put it into `revokedKeys`, where it counts for nothing, whenever the commit says it was made.

## OpenPGP keys

    gpg --export --armor ada@example.com bob@example.com > /etc/reconciler/signers.asc

Every key in the file is trusted; no keyring, configuration or key server of the host is asked. A key that has expired
or was revoked counts for nothing, for older commits too: extend it in time and export it again.

## Rotating a key

1. Add the new key: a line in `allowedSigners`, or a new export of the keyring. Both keys count now.
2. Sign with the new key, and push a commit.
3. When that commit is applied, end the old key: give it a `valid-before`, or take it out of the file.

Take a key out, or revoke it, and the revision that stands is judged again: where its own signature no longer counts,
nothing changes in the world, but the source reports `SourceUnverified` until a commit with a good signature is on top.

Revoke a stolen key at once, by `revokedKeys` or a new export with its revocation in it; then look at
`reconciler history` for what it had applied.
"""


def page() -> str:
    """The text of the page."""
    return TEXT
