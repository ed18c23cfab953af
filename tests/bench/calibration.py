"""How fast this machine is now: the CPU time in which PyYAML loads one fixed document.

The budgets were set on a machine that needed ``REFERENCE`` seconds. On another one, or beside programs that use
the same caches, everything takes longer by about the same factor. On a virtual machine that changes within seconds, so
a process measures it all the time: ``python -m tests.bench.calibration FILE PID`` adds lines to FILE.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

import yaml

from tests.bench.measure import Failed

REFERENCE = 0.28e-3
FIRST_LOADS, LOADS = 2, 10
"""The first loads of a round only fill the caches."""
PAUSE = 0.5
"""Seconds between two rounds, which use 1 to 2 % of a core."""
LEAST_ROUNDS = 5
"""Rounds that say enough: one alone differs by half from those around it."""

DOCUMENT = """# go service 7 of team-0001
kind: workload
name: api-000007
description: Service 7 of team-0001, written in python
tags:
  team: team-0001
  tier: backend
  language: python
spec:
  type: standard
  identityLink: //identity/api
  containers:
    - name: main
      image: //image/python-service:1.7.7
      cpu: 450m
      memory: 256Mi
      inheritEnv: true
      ports:
        - number: 8087
          protocol: http
      env:
        - name: LOG_LEVEL
          value: info
        - name: DB_PASSWORD
          value: platform://secret/db.password
        - name: REGION
          value: $(PLATFORM_LOCATION)
        - name: SHARD
          value: "7"
      readinessProbe:
        httpGet:
          path: /healthz
          port: 8087
        initialDelaySeconds: 7
        periodSeconds: 10
      livenessProbe:
        tcpSocket:
          port: 8087
        failureThreshold: 3
      volumes:
        - uri: scratch://cache
          path: /cache
  defaultOptions:
    autoscaling:
      metric: cpu
      target: 57
      minScale: 2
      maxScale: 5
    timeoutSeconds: 12
    capacityAI: false
    debug: false
  localOptions:
    - location: aws-us-west-2
      autoscaling:
        metric: cpu
        target: 57
        minScale: 2
        maxScale: 8
      timeoutSeconds: 12
      capacityAI: false
  rolloutOptions:
    maxSurgeReplicas: 25%
    minReadySeconds: 7
  firewallConfig:
    external:
      inboundAllowCIDR:
        - 0.0.0.0/0
      outboundAllowHostname:
        - service-7.example.com
    internal:
      inboundAllowType: same-gvc
"""
"""Never changed, so that figures of different days compare."""


class Calibration:
    """Seconds of CPU of one load, at any time from the ``with`` statement to its end. ``directory`` has the file."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "calibration"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Calibration:
        self._file.touch()
        command = [sys.executable, "-m", __name__, self._file, str(os.getpid())]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()

    def since(self, began: float) -> list[float]:
        """The rounds that ended since ``began`` (``time.monotonic``), and at least the newest ones. Raises Failed."""
        while not (rounds := self._rounds()):
            time.sleep(PAUSE / 10)
        newest = [load for _, load in rounds[-LEAST_ROUNDS:]]
        return max([load for ended, load in rounds if ended >= began], newest, key=len)

    def pace(self, began: float) -> float:
        """How many times slower than the reference this machine was since ``began``."""
        return mean(self.since(began)) / REFERENCE

    def _rounds(self) -> list[tuple[float, float]]:
        """When each round ended, and the seconds of one load."""
        if self.process is None or self.process.poll() is not None:
            raise Failed("nothing measures the pace of this machine")
        # The process may be writing the last line.
        lines = self._file.read_text().split("\n")[:-1]
        return [(float(ended), float(load)) for ended, load in map(str.split, lines)]


def main(file: Path, benchmark: int) -> None:
    """Measure again and again, until the process ``benchmark`` has ended, however it ended."""
    with file.open("a", buffering=1) as lines:
        while os.getppid() == benchmark:
            _load(FIRST_LOADS)
            load = _load(LOADS)
            print(time.monotonic(), load, file=lines)
            time.sleep(PAUSE)


def _load(times: int) -> float:
    began = time.thread_time()
    for _ in range(times):
        yaml.load(DOCUMENT, yaml.CSafeLoader)
    return (time.thread_time() - began) / times


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
