"""Random commits: workloads of every shape that the host engine runs, changed, broken and mended again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.git import File
from tests.support.host_sandbox import GVC, served

PROGRAMS = {
    "plain": "exec sleep 1000",
    "deaf": "trap '' TERM; while :; do sleep 1; done",
    "noisy": 'i=0; while :; do i=$((i+1)); echo "line $i $SECRET"; sleep 0.2; done',
    "forking": "(setsid sleep 1000 &) ; exec sleep 1000",
    "writing": "while :; do date > $RECONCILER_VOLUMES/scratch/now; sleep 1; done",
}
"""Commands of containers, by the name of the shape; all run until they are ended."""
BROKEN: dict[str, File] = {
    "torn.yaml": "kind: workload\nname: [\n",
    "deep.yaml": 'sops: {mac: "", lastmodified: ""}\n---\n' + "[" * 5000,
    "unknown.yaml": "kind: workload\nname: nothing\ngvc: shop\nspec: {type: standrd}\n",
    "binary.yaml": b"\xff\xfe\x00\x01" * 50,
    "twice.yaml": "kind: gvc\nname: shop\nspec: {}\n",
}
"""Files that a revision is refused for."""
MOST = 8
"""Workloads at a time."""
STATEFUL = ("w1", "w4", "w7")
"""Workloads that are stateful; the others are standard."""


@dataclass(frozen=True)
class DesiredWorkload:
    """One workload as the newest good commit asks for it."""

    shape: str
    stateful: bool
    probed: bool
    replicas: int
    number: int

    def manifest(self, name: str) -> str:
        """Its file. ``NUMBER`` in the environment of its programs names the change that made them."""
        script = PROGRAMS[self.shape]
        probe = {"exec": {"command": ["true"]}, "periodSeconds": 1} if self.probed else None
        environ = {"NUMBER": str(self.number)} | (
            {"SECRET": "platform://secret/db.password"} if self.number % 2 else {}
        )
        scratch = [{"uri": "scratch://scratch", "path": "/scratch"}] if self.shape == "writing" else None
        text = served(
            name,
            replicas=self.replicas,
            command="sh",
            args=["-c", script],
            ports=None,
            env=environ,
            readinessProbe=probe,
            livenessProbe=probe,
            volumes=scratch,
            identityLink="//identity/reader",
        )
        return text.replace('"type": "standard"', '"type": "stateful"') if self.stateful else text


SECRET = "kind: secret\nname: db\ntype: dictionary\ndata: {password: first}\n"
FOUNDATION: dict[str, File] = {
    "shop/gvc.yaml": GVC,
    "shop/reader.yaml": "kind: identity\nname: reader\ngvc: shop\n",
    "shop/policy.yaml": "kind: policy\nname: reads\ntargetKind: secret\ntargetLinks: [//secret/db]\nbindings:\n"
    "  - {permissions: [reveal], principalLinks: [//gvc/shop/identity/reader]}\n",
    "secret.yaml": SECRET,
}


class Commits:
    """The files of the repository, as one random change after another leaves them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._number = 0
        self.wanted: dict[str, DesiredWorkload] = {}
        self.broken: set[str] = set()

    def change(self) -> dict[str, File]:
        """The files of the next commit."""
        self._number += 1
        kinds: list[Callable[[], dict[str, File]]] = [self._update] * 4
        kinds += [self._add] * 2 + [self._delete, self._secret, self._variable, self._break, self._mend]
        return self._chance.choice(kinds)()

    def mend(self) -> dict[str, File]:
        """A commit after which the revision is good: what is broken goes."""
        files: dict[str, File] = dict.fromkeys(sorted(self.broken), None)
        self.broken.clear()
        return files | self._variable()

    def _add(self) -> dict[str, File]:
        free = [f"w{at}" for at in range(MOST) if f"w{at}" not in self.wanted]
        if not free:
            return self._update()
        name = self._chance.choice(free)
        some = DesiredWorkload(
            shape=self._chance.choice(sorted(PROGRAMS)),
            stateful=name in STATEFUL,  # a type cannot change, and the daemon may not see the delete between
            probed=self._chance.random() < 0.5,
            replicas=self._chance.randint(1, 3),
            number=self._number,
        )
        return self._put(name, some)

    def _update(self) -> dict[str, File]:
        if not self.wanted:
            return self._add()
        name = self._chance.choice(sorted(self.wanted))
        if self._chance.random() < 0.3:
            return self._put(name, replace(self.wanted[name], replicas=self._chance.randint(1, 3)))
        return self._put(name, replace(self.wanted[name], number=self._number))

    def _put(self, name: str, some: DesiredWorkload) -> dict[str, File]:
        self.wanted[name] = some
        return {f"shop/{name}.yaml": some.manifest(name)}

    def _delete(self) -> dict[str, File]:
        if len(self.wanted) < 3:
            return self._add()
        name = self._chance.choice(sorted(self.wanted))
        del self.wanted[name]
        return {f"shop/{name}.yaml": None}

    def _secret(self) -> dict[str, File]:
        return {"secret.yaml": SECRET.replace("first", f"value-{self._number}")}

    def _variable(self) -> dict[str, File]:
        return {"shop/gvc.yaml": GVC.replace("spec: {", f"spec: {{env: [{{name: COMMON, value: '{self._number}'}}], ")}

    def _break(self) -> dict[str, File]:
        name = self._chance.choice(sorted(BROKEN))
        self.broken.add(name)
        return {name: BROKEN[name]}

    def _mend(self) -> dict[str, File]:
        return self.mend()
