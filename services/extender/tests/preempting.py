"""Calls of preempt without an HTTP server."""

import asyncio

import msgspec
from objects import Object

from gpuextender.scheduling.messages import PreemptionResult
from gpuextender.scheduling.preempt import Preempt


def answer(preempt: Preempt, body: Object) -> PreemptionResult:
    """What kube-scheduler is answered."""
    return asyncio.run(preempt.preempt(msgspec.json.encode(body)))
