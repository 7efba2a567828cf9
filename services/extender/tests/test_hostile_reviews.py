"""Reviews that only an attacker sends: what they cost the webhook, and other reviews."""

import asyncio
import json
import tracemalloc

import pytest
from admissioncalls import Known
from decoded import a_node, state_of
from objects import pod

from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpuextender.health import Readiness
from gpuextender.http.server import ADMISSION
from gpuextender.webhook import LARGE_BYTES, AdmissionWebhook
from gpukube.server.direct import HttpReply

STORED = 3 << 19
"""Most bytes of an object in etcd."""


@pytest.fixture
def hook() -> AdmissionWebhook:
    """A webhook of a cluster with a GPU of 15 GiB."""
    health = Readiness([Known()], stale_after=60)
    health.loaded = True
    return AdmissionWebhook(
        state_of(a_node("n", 15)), health, profiles=SchedulerProfiles("gpushare-scheduler")
    )


def review_of(spec: bytes, namespace: str = "default") -> bytes:
    """A review of a pod, with the text of its specification."""
    item = b'{"metadata":{"name":"p"},"spec":' + spec + b"}"
    head = f'{{"request":{{"uid":"r","namespace":"{namespace}","object":'
    return head.encode() + item + b"}}"


def containers(count: int) -> bytes:
    """A specification with empty containers."""
    return b'{"containers":[' + b",".join([b"{}"] * count) + b"]}"


async def measured(hook: AdmissionWebhook, body: bytes) -> tuple[HttpReply, int]:
    """The reply to a review, and the most bytes of memory that it took."""
    tracemalloc.start()
    try:
        reply = await hook.admit(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return reply, most


async def test_a_review_of_more_values_than_an_object_has_is_not_decoded(
    hook: AdmissionWebhook,
) -> None:
    """Decoding its 7 million containers took 1.9 GiB, twice the memory of the pod."""
    body = review_of(containers((ADMISSION.bodies.each - 200) // 3))
    assert len(body) < ADMISSION.bodies.each
    reply, most = await measured(hook, body)
    assert (reply.status, reply.body) == (400, b"an AdmissionReview with more than 2097152 values")
    assert most < 3 * len(body)


@pytest.mark.parametrize("value", [b"[]", b"{}", b'""', b'"{[\\""', b'{"":""}'])
async def test_every_object_that_etcd_can_have_is_decoded(
    hook: AdmissionWebhook, value: bytes
) -> None:
    """Otherwise its author could escape the review, which the API server then ignores."""
    fields = b"[" + b",".join([value] * (STORED // (len(value) + 1))) + b"]"
    item = json.dumps(pod("p", 2) | {"fields": []}).encode().replace(b"[]", fields)
    body = b'{"request":{"uid":"r","namespace":"d","object":%b,"oldObject":%b}}' % (item, item)
    assert (await hook.admit(body)).status == 200


async def test_containers_that_are_too_many_are_counted_before_a_look_at_them(
    hook: AdmissionWebhook,
) -> None:
    """A pod of theirs takes several times the memory of the text."""
    body = review_of(containers(300_000))
    reply, most = await measured(hook, body)
    refusal = json.loads(reply.body)["response"]["status"]["message"]
    assert refusal == "gpushare: has 300000 containers, more than 1000"
    assert most < 40 * len(body)


async def test_pods_of_kube_system_pass_unread(hook: AdmissionWebhook) -> None:
    """The namespace is that of the request, and whoever reaches the port can write it."""
    reply = await hook.admit(review_of(containers(1001), "kube-system"))
    assert json.loads(reply.body)["response"] == {"uid": "r", "allowed": True}
    reply = await hook.admit(review_of(b"7", "kube-system"))
    assert json.loads(reply.body)["response"] == {"uid": "r", "allowed": True}


async def test_a_review_does_not_wait_for_large_ones(hook: AdmissionWebhook) -> None:
    """Each takes up to a second, so that probes fail where many are answered one after another."""
    large = review_of(b'{"x":"' + b"x" * LARGE_BYTES + b'"}')
    answered: list[int] = []

    async def admit(number: int, body: bytes) -> None:
        assert (await hook.admit(body)).status == 200
        answered.append(number)

    bodies = (large, large, large, review_of(b"{}"))
    await asyncio.gather(*(admit(number, body) for number, body in enumerate(bodies)))
    assert answered == [3, 0, 1, 2]
