"""A plan lists, before anything is applied, what a location on this host will not enforce."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import msgspec

from reconciler.engines.host.reading.foreseen import foresee_limitations
from reconciler.model.key import Key
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.records.store import FILE, Records
from reconciler.settings import LocationSettings, Settings
from tests.engines.host.provisioning.kit import body
from tests.support.command_sandbox import SETTINGS, CommandSandbox, workload
from tests.support.plans import step
from tests.support.programs import only_root, open_way

GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here, //location/there]}}\n"
FILES = {
    "shop/gvc.yaml": GVC,
    **{
        f"shop/{name}.yaml": workload(name).replace("      ports", "      command: serve\n      ports")
        for name in ("web", "api")
    },
}


def host_sandbox(path: Path) -> CommandSandbox:
    """``here`` is this machine, ``there`` is only recorded."""
    sandbox = CommandSandbox(path, dict(FILES))
    sandbox.settings.write_text(
        SETTINGS.replace("  here: {engine: recorded}", "  here: {engine: host, runtime: process}")
    )
    return sandbox


def lines(sandbox: CommandSandbox) -> list[str]:
    """What the plan lists as not enforced."""
    return [line for line in sandbox.run("plan").out.splitlines() if line.startswith("Not enforced")]


def test_a_plan_lists_what_a_location_on_this_host_will_not_enforce(tmp_path: Path) -> None:
    sandbox = host_sandbox(tmp_path)
    shown = lines(sandbox)
    both = "Not enforced at here: workload/shop/api, workload/shop/web: The firewall is not enforced: "
    assert [line for line in shown if line.startswith(both)]
    assert [line for line in shown if "workload/shop/web: Images are not used (" in line]
    assert not [line for line in shown if " at there" in line]
    found = sandbox.run("plan", "--format", "json").json["not_enforced"]
    firewall = next(each for each in found if "firewall" in each["message"])
    assert (firewall["location"], firewall["keys"]) == ("here", ["workload/shop/api", "workload/shop/web"])
    assert "Not enforced at here" in sandbox.run("plan", "--format", "markdown").out


@only_root("only root runs workloads as another user")
def test_a_plan_names_a_directory_that_the_user_of_workloads_cannot_pass(tmp_path: Path) -> None:
    sandbox = host_sandbox(tmp_path)
    open_way(tmp_path)
    message = f"{tmp_path} lets only its owner pass, and workloads run as nobody: nothing starts below it"
    assert message not in sandbox.run("plan").out
    assert message not in sandbox.run("doctor").out
    tmp_path.chmod(0o700)
    refused = sandbox.run("plan")
    assert refused.code == 1
    for name in ("api", "web"):
        assert f"Refused at here: workload/shop/{name}: {message}" in refused.out
    assert f"problem  host engine: {message}" in sandbox.run("doctor").out
    sandbox.settings.write_text(f"{sandbox.settings.read_text()}host: {{defaultUser: root}}\n")
    assert message not in sandbox.run("plan").out


def test_what_only_an_image_could_run_is_refused_before_it_is_applied(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path, {**FILES, "shop/api.yaml": workload("api")})
    hosts = {
        "process": SETTINGS.replace("here: {engine: recorded}", "here: {engine: host, runtime: process}"),
        "auto": SETTINGS.replace("here: {engine: recorded}", "here: {engine: host}")
        + "podman: {socket: /nowhere/podman.sock}\n",
    }
    for runtime, settings in hosts.items():
        sandbox.settings.write_text(settings)
        for command in ("plan", "apply"):
            refused = sandbox.run(command)
            assert refused.code == 1, runtime
            assert (refused.out + refused.err).count("[host-command]") == 1, runtime
            assert "apt-get install podman" in refused.out + refused.err


DATA = "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: SIZE, performanceClass: general-purpose-ssd}\n"
VOLUMES = b"""{"name": "here", "usedByWorkload": "/org/acme/gvc/shop/workload/db", "volumes": [
    {"index": 0, "lifecycle": "bound", "currentSize": 10, "growsDetached": true},
    {"index": 1, "lifecycle": "bound", "currentSize": 20, "growsDetached": true},
    {"index": 2, "lifecycle": "unbound", "currentSize": 10, "growsDetached": true},
    {"index": 3, "lifecycle": "bound", "currentSize": 10}]}"""


def test_a_plan_names_the_replicas_that_stop_while_their_volumes_grow(tmp_path: Path) -> None:
    sandbox = host_sandbox(tmp_path)
    sandbox.commit({"shop/data.yaml": DATA.replace("SIZE", "20")})
    with closing(Records.open(sandbox.state / FILE)) as records:
        key = Key.parse("volumeset/shop/data")
        spec = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd", "fileSystemType": "ext4"}
        body = json.dumps({"kind": "volumeset", "name": "data", "gvc": "shop", "spec": spec}).encode()
        for place, engine in (("here", "host"), ("there", "recorded")):
            records.applied.put(Record(key, place, "main", "d", body, 1, engine, Health.HEALTHY, VOLUMES))
    message = (
        "volume 0 grows from 10 to 20 GB, and its replica stops meanwhile: ext4 grows in use only with CAP_SYS_RESOURCE"
    )
    line = f"Stops at here: volumeset/shop/data: {message}"
    assert [each for each in sandbox.run("plan").out.splitlines() if each.startswith("Stops")] == [line]
    assert f"`{line}`" in sandbox.run("plan", "--format", "markdown").out
    assert sandbox.run("plan", "--format", "json").json["stops"] == [
        {"message": message, "location": "here", "key": "volumeset/shop/data"}
    ]


def test_a_change_shows_only_what_is_new(tmp_path: Path) -> None:
    def asked(image: str) -> Step:
        written = body({"type": "standard", "containers": [{"name": "main", "image": image, "command": "true"}]})
        return msgspec.structs.replace(step("workload/shop/web", action=Action.UPDATE, engine="host"), body=written)

    settings = Settings("acme", (), tmp_path, locations={"here": LocationSettings("host", runtime="process")})
    with closing(Records.open(None)) as records:
        before = asked("web:1")
        assert len(foresee_limitations(settings, records, [before])) == 2
        records.applied.put(Record(before.key, "here", "main", "d", before.body, 1, "host", Health.HEALTHY))
        assert foresee_limitations(settings, records, [before]) == []
        [changed] = foresee_limitations(settings, records, [asked("web:2")])
        assert changed.message.startswith("Images are not used (web:2)")
