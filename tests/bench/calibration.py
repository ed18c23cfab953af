"""How fast this machine is now: the CPU time in which PyYAML loads one fixed document.

The budgets were set on a machine that needed ``REFERENCE`` seconds. On another one, or beside programs that use
the same caches, everything takes longer by about the same factor.
"""

from __future__ import annotations

import time
from statistics import median

import yaml

REFERENCE = 0.28e-3
ROUNDS, LOADS = 20, 20

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


def calibrate() -> float:
    """Seconds of CPU of one load: the median of several rounds."""
    taken = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(LOADS):
            yaml.load(DOCUMENT, yaml.CSafeLoader)
        taken.append((time.thread_time() - began) / LOADS)
    return median(taken)
