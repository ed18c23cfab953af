"""Manifests of every kind with the shapes of published ones, the same for the same numbers and without a fault.

Shares are those of 304 manifests that people published. A folder is a team: a hundred files, one manifest in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.bench.templates import (
    API,
    BLOCK_COMMAND,
    DOMAIN,
    EMPTY_FIREWALL,
    FLOW_COMMAND,
    GVC,
    IDENTITY,
    INBOUND,
    LOCAL_OPTIONS,
    OTHERS,
    POLICY,
    REPORT,
    SECRETS,
    STORE,
    TEAM_POLICY,
    VOLUMESET,
    WEB,
)

LOCATIONS = ("aws-us-west-2", "gcp-us-east1")
LANGUAGES = ("go", "java", "python", "rust", "node")
LEVELS = ("debug", "info", "warning")
STAGES = ("prod", "staging", "dev", "test", "demo", "edge", "jobs", "data", "tools")
"""What the GVCs of a team are for."""

IN_A_FOLDER = 100
WORKLOADS = 32
"""How many of a folder's files are workloads; the other numbers are those of the published manifests too."""
SECRETS_OF_A_TEAM = 19
IDENTITIES = 10
POLICIES = 10
VOLUMESETS = 7
DOMAINS = 6


class Shapes(NamedTuple):
    """Which forms of YAML a file has besides plain lines."""

    empty: bool
    single: bool
    double: bool
    block: bool
    flow: bool
    foreign: bool


SHARES = Shapes(47, 24, 20, 11, 3, 1)
"""Percent of the files; ``foreign`` is text outside ASCII."""

TURNS = SHARES._replace(flow=7)
"""Of a hundred files so many are to have a shape; not half of them hold a list that can be written in brackets."""

_STRIDES = ((37, 11), (53, 29), (71, 17), (89, 5), (59, 13), (31, 7))
"""For each shape: how the files of a folder, and the folders, take their turns."""


class ManifestFile(NamedTuple):
    """The file ``slot`` of ``folder``, both from 0."""

    folder: int
    slot: int

    @property
    def team(self) -> str:
        """``team-0001``: the directory."""
        return team_name(self.folder)

    @property
    def shapes(self) -> Shapes:
        """Each shape for its share of the files of every folder."""
        turns = ((self.slot * step + self.folder * shift) % IN_A_FOLDER for step, shift in _STRIDES)
        return Shapes(*(turn < share for turn, share in zip(turns, TURNS, strict=True)))


def team_name(folder: int) -> str:
    """Folder 0 → ``team-0001``."""
    return f"team-{folder + 1:04d}"


def workload_name(index: int) -> str:
    """Workload 7 → ``api-000007``, unique in the repository."""
    return f"api-{index:06d}"


def gvc_of(index: int) -> str:
    """The GVC of workload ``index``."""
    folder, number = divmod(index, WORKLOADS)
    return _gvc(folder, number)


def files(count: int) -> Iterator[tuple[str, str]]:
    """Path and text of ``count`` manifests in folders of a hundred."""
    for number in range(count):
        place = ManifestFile(*divmod(number, IN_A_FOLDER))
        name, text = _file(place)
        yield f"{place.team}/{name}.yaml", text


def _file(file: ManifestFile) -> tuple[str, str]:
    """Name and text of one file; what others link to comes first, so that a part of a folder has no fault either."""
    slot = file.slot
    for size, make in _KINDS:
        if slot < size:
            return make(file, slot)
        slot -= size
    raise AssertionError(f"a folder has {IN_A_FOLDER} files, not {file.slot + 1}")


def _gvc(folder: int, number: int) -> str:
    return f"{team_name(folder)}-{STAGES[number % len(STAGES)]}"


def _quoted(place: ManifestFile, text: str) -> str:
    """A description as the shapes of the file have it."""
    shapes = place.shapes
    if shapes.foreign:
        text = f"{text} – geprüft für Zürich"
    if shapes.block:
        head, _, tail = text.partition(" of ")
        return f">-\n  {head}\n  of {tail}"
    if shapes.single:
        return f"'{text}'"
    return f'"{text}"' if shapes.double else text


def _tags(file: ManifestFile, *lines: str) -> str:
    """The tags of the file: what its kind needs, and quoted texts where the description has other quotes."""
    shapes = file.shapes
    more = list(lines)
    if shapes.double and (shapes.block or shapes.single):
        more.append(f'revision: "{1 + file.folder % 40}"')
    if shapes.single and shapes.block:
        more.append("reviewed: 'true'")
    if more:
        return "tags:\n" + "".join(f"  {line}\n" for line in more)
    return "tags: {}\n" if shapes.empty else ""


def _gvc_file(file: ManifestFile, number: int) -> tuple[str, str]:
    shapes = file.shapes
    gvc = _gvc(file.folder, number)
    env = "  env: []\n" if shapes.empty else f"  env:\n    - name: STAGE\n      value: {STAGES[number]}\n"
    pull = f"  pullSecretLinks:\n    - //secret/{file.team}-registry\n" if number == 0 else ""
    return f"gvc-{STAGES[number]}", GVC.format(
        name=gvc,
        description=_quoted(file, f"The {STAGES[number]} environment of {file.team}"),
        tags=_tags(file, f"team: {file.team}"),
        location=LOCATIONS[(file.folder + number) % len(LOCATIONS)],
        env=env,
        pull=pull,
    )


def _secret_file(file: ManifestFile, number: int) -> tuple[str, str]:
    shapes = file.shapes
    form = "registry" if number == SECRETS_OF_A_TEAM - 1 else ("db", "token")[number % 2]
    owner = file.team if form == "registry" else _gvc(file.folder, number // 2)
    payload = f"not-a-real-token-{number}"
    return f"secret-{number:02d}", SECRETS[form].format(
        name=f"{owner}-{form}",
        description=_quoted(file, f"The {form} of {owner}"),
        tags=_tags(file),
        owner=owner,
        password=f'"not-a-real-password-{number}"' if shapes.double else f"not-a-real-password-{number}",
        payload=f"|\n    issuer={file.team}\n    token={payload}" if shapes.block else payload,
    )


def _identity_file(file: ManifestFile, number: int) -> tuple[str, str]:
    shapes = file.shapes
    gvc = _gvc(file.folder, number)
    name = "service" if number < len(STAGES) else "archive"
    return f"identity-{number}", IDENTITY.format(
        name=name,
        gvc=gvc,
        description=_quoted(file, f"The {name} of {gvc}"),
        tags=_tags(file),
        resources="networkResources: []\n" if shapes.empty else "",
    )


def _policy_file(file: ManifestFile, number: int) -> tuple[str, str]:
    gvc = _gvc(file.folder, number)
    template = POLICY if number < len(STAGES) else TEAM_POLICY
    permission = "reveal" if template is POLICY else "edit"
    return f"policy-{number}", template.format(
        name=f"{gvc}-reveal" if template is POLICY else f"{file.team}-release",
        team=file.team,
        description=_quoted(file, f"The services of {gvc} read their secrets"),
        tags=_tags(file),
        gvc=gvc,
        permissions=f" [{permission}]" if file.shapes.flow else f"\n      - {permission}",
    )


def _volumeset_file(file: ManifestFile, number: int) -> tuple[str, str]:
    gvc = _gvc(file.folder, number)
    schedule = f"{file.folder % 60} 3 * * *"
    return f"volumeset-{number}", VOLUMESET.format(
        gvc=gvc,
        description=_quoted(file, f"The data of {gvc}"),
        tags=_tags(file),
        capacity=10 + file.folder % 90,
        schedule=f"'{schedule}'" if file.shapes.single else schedule,
    )


def _workload_file(file: ManifestFile, number: int) -> tuple[str, str]:
    folder, shapes = file.folder, file.shapes
    index = folder * WORKLOADS + number
    name, gvc = workload_name(index), _gvc(folder, number)
    language = LANGUAGES[index % len(LANGUAGES)]
    template = _template(number)
    waits = number >= len(STAGES) and index % 10 == 5
    before = f"workload/{gvc}/{workload_name(index - len(STAGES))}"
    depends = (f"reconciler/depends-on: {before}",) if waits else ()
    scale = {"target": 50 + index % 40, "least": 1 + index % 3, "most": 5 + index % 7, "timeout": 5 + index % 50}
    location = LOCATIONS[(folder + number % len(STAGES)) % len(LOCATIONS)]
    return name, template.format(
        name=name,
        gvc=gvc,
        description=_quoted(file, f"Service {index} of {file.team}, written in {language}"),
        tags=_tags(file, *depends) if shapes.empty else _tags(file, f"team: {file.team}", *depends),
        language=language,
        minor=index % 13,
        patch=index % 29,
        cpu=100 + 50 * (index % 8),
        memory=128 * (1 + index % 6),
        port=8080 + index % 10,
        level=f"'{LEVELS[index % 3]}'" if shapes.single else LEVELS[index % 3],
        shard=f'"{index}"' if shapes.double else f"shard-{index}",
        delay=index % 15,
        command=BLOCK_COMMAND.format(name=name) if shapes.block else FLOW_COMMAND if shapes.flow else "",
        inbound=INBOUND if template in (API, WEB) else "",
        firewall=EMPTY_FIREWALL if shapes.empty else "",
        local=LOCAL_OPTIONS.format(location=location, **scale) if index % 2 else "",
        minute=index % 60,
        hour=index % 24,
        **scale,
    )


def _template(number: int) -> str:
    """What the workload ``number`` of a folder is: one in each of seven GVCs stores, and each GVC has a web page."""
    if number < VOLUMESETS:
        return STORE
    if 9 <= number < 18:
        return WEB
    return REPORT if number >= 28 else API


def _domain_file(file: ManifestFile, number: int) -> tuple[str, str]:
    index = file.folder * WORKLOADS + len(STAGES) + number
    gvc = _gvc(file.folder, number)
    return f"domain-{number}", DOMAIN.format(
        name=f"{STAGES[number]}.{file.team}.example.com",
        description=_quoted(file, f"The address of {gvc}"),
        tags=_tags(file),
        gvc=gvc,
        workload=workload_name(index),
        port=8080 + index % 10,
        methods=" [GET, POST]" if file.shapes.flow else "\n          - GET\n          - POST",
    )


def _other_file(file: ManifestFile, number: int) -> tuple[str, str]:
    kind, text = list(OTHERS.items())[number]
    return kind, text.format(
        team=file.team,
        description=_quoted(file, f"The {kind} of {file.team}"),
        tags=_tags(file),
        gvc=_gvc(file.folder, 0),
        location=LOCATIONS[file.folder % len(LOCATIONS)],
        number=file.folder,
    )


_KINDS: tuple[tuple[int, Callable[[ManifestFile, int], tuple[str, str]]], ...] = (
    (SECRETS_OF_A_TEAM, _secret_file),
    (len(STAGES), _gvc_file),
    (IDENTITIES, _identity_file),
    (POLICIES - 1, _policy_file),
    (VOLUMESETS, _volumeset_file),
    (WORKLOADS, _workload_file),
    (DOMAINS, _domain_file),
    (len(OTHERS), _other_file),
    (1, lambda place, _: _policy_file(place, POLICIES - 1)),
)
"""How many files of each kind a folder has, and what makes them."""
