"""The life of containers over the Podman service of a user: `python -m … FOLDER USER`, started by root.

It imports everything as root, since the project may lie where that user cannot read, and prints what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from reconciler.engines.host.dataplane.ports import free_ports
from tests.engines.host.runtimes.podman.kit import KEY, opened, place, shell
from tests.engines.host.runtimes.podman.test_plugin import wanted
from tests.support.fork_server import import_all
from tests.support.podman import IMAGE, PodmanService, busybox_image

SCRIPT = (
    "mkdir /w; cd /w; echo page >index.html; httpd -p 8080; id -u; "
    "trap 'exit 5' TERM; echo ready; while :; do sleep 1000 & wait; done"
)


async def life(service: PodmanService, root: Path) -> dict[str, Any]:
    """Start a container, serve from it, enter it, adopt it by another daemon, and end it."""
    ports = free_ports([8080], ())
    results: dict[str, Any] = {}
    async with opened(root, service.socket, keep=True) as host:
        results["limitations"] = list(host.runtime.limitations(wanted()))
        await host.runtime.start(shell(SCRIPT, ports=ports, replica_ports=ports))
        results["output"] = (await host.wrote("ready")).split()
        fetched = await asyncio.create_subprocess_exec(
            "curl",
            "-sS",
            "--retry",
            "5",
            "--retry-connrefused",
            f"http://127.0.0.1:{ports[8080]}/",
            stdout=subprocess.PIPE,
        )
        results["page"] = (await fetched.communicate())[0].decode()
        results["exec"] = (await host.runtime.exec(place(), ["sh", "-c", "echo inside; exit 4"], 10)).code
    async with opened(root, service.socket) as second:
        results["adopted"] = (await second.running()).alive
        await second.runtime.signal(place(), signal.SIGTERM)
        results["code"] = (await second.over()).code
        await second.runtime.remove(KEY, "r")
    results["left"] = service.containers()
    return results


def main(folder: Path, user: str) -> None:
    """Become ``user`` and live there; nothing of the service is left."""
    import_all()
    image = busybox_image(IMAGE)
    passwd = pwd.getpwnam(user)
    folder.mkdir()
    os.chown(folder, passwd.pw_uid, passwd.pw_gid)
    os.chdir(folder)
    os.initgroups(user, passwd.pw_gid)
    os.setgid(passwd.pw_gid)
    os.setuid(passwd.pw_uid)
    run = folder / "xdg"
    run.mkdir(mode=0o700)
    os.environ |= {"XDG_RUNTIME_DIR": str(run), "HOME": str(folder), "USER": user}
    service = PodmanService(folder / "podman")
    try:
        service.start()
        service.load(image)
        print(json.dumps(asyncio.run(life(service, folder / "state"))))
    finally:
        service.kill()
        # The files of containers belong to other numbers, which only their own namespace may remove.
        subprocess.run(["podman", "unshare", "rm", "-rf", str(folder / "podman")], check=False, capture_output=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
