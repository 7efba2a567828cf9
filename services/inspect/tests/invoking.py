"""The command as a person runs it, in this process."""

from typing import NamedTuple, Protocol

from drawncluster import FakeCluster

POD = """
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers:
  - name: model
    resources: {limits: {aliyun.com/gpu-mem: "8"}}
"""
"""A manifest of one pod with 8 units."""


class WhatIfOutcome(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


class Run(Protocol):
    """Runs ``gpushare ARGS``, on a snapshot of ``on`` where one is given."""

    def __call__(self, *args: str, on: FakeCluster | None = None) -> WhatIfOutcome:
        """What it printed and how it ended."""
        ...
