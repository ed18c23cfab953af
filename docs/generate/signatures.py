"""docs/signatures.md: the verification of signed commits and tags, and the rotation of keys."""

from __future__ import annotations

TEXT = """\
# Signatures

With `verify`, a source accepts only commits or tags signed by a trusted key. Other changes are not applied, even by
people with push access to the repository or control of the network to it.

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

* `commit`: the newest commit. Its signer vouches for the whole content of the repository at that commit, including
  earlier commits of other authors; so the person who merges signs.
* `history`: every commit since the last good revision, including merged branches; for a source that was never loaded,
  only the newest commit. An unsigned commit blocks the branch until the branch is rewritten without it. Parents are
  read from the commits themselves: grafts, replacements and shallow files of the repository have no effect. A shallow
  clone must reach back to the last good revision.
* `tag`: the annotated tag that the source follows (`tag`): a release, signed under this name.

Every revision is checked before any of its files is read, including those of `plan --revision` and `rollback`. A
revision that is unsigned, altered, or signed by an unknown, expired or revoked key is refused: the condition
`SourceReachable` becomes false with the reason `SourceUnverified`, with an event, and the last good revision stays
applied until the next good commit. Results are cached by the id of the commit, so a poll costs nothing. The files with
keys are read at each poll and need no restart; if one changes, commits are checked again.

A signature confirms a content, not a branch: if a person may sign only for a test branch, keep their key out of the
file of a production source. A branch that returns to an older signed commit is refused as rewritten history
(`allowRewrite`).

## ssh keys

`allowedSigners` has a line for each key: principal, options, key. Times are in the time zone of the host, or in UTC if
they end in Z.

    ada@example.com namespaces="git" ssh-ed25519 AAAA…
    bob@example.com namespaces="git",valid-after="20260101Z",valid-before="20270101Z" ssh-ed25519 AAAA…
    *@example.com cert-authority,namespaces="git" ssh-ed25519 AAAA…

A key with `valid-before` is valid for commits with an earlier commit time, so earlier signatures stay valid. The
committer sets that time, so `valid-before` does not protect against a stolen key: put the key into `revokedKeys`,
where it is invalid for every commit time.

## OpenPGP keys

    gpg --export --armor ada@example.com bob@example.com > /etc/reconciler/signers.asc

Every key in the file is trusted; keyrings, configuration and key servers of the host are not used. An expired or
revoked key is invalid, also for older commits: extend it in time and export it again.

## Rotating a key

1. Add the new key: a line in `allowedSigners`, or a new export of the keyring. Both keys are valid now.
2. Sign with the new key, and push a commit.
3. When that commit is applied, end the old key: give it a `valid-before`, or remove it from the file.

After a key is removed or revoked, the applied revision is checked again. If its signature is no longer valid, resources
stay unchanged, but the source reports `SourceUnverified` until a newer commit has a valid signature.

Revoke a stolen key at once, by `revokedKeys` or a new export with its revocation; then check `reconciler history` for
the commits that it signed.
"""


def page() -> str:
    """The text of the page."""
    return TEXT
