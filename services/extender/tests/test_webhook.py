"""The admission webhook: what it sets, what it refuses in one sentence, and its certificates."""

import asyncio
import base64
import json
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from admissioncalls import Known, review, started, webhook
from certificates import make_certificate, shown
from decoded import a_node, state_of
from objects import node, pod
from running import WAIT_SECONDS

from gpucore.claims.convert import ClaimRequests
from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpucore.units import GIB
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.spec import decode_pod
from gpuextender import metrics
from gpuextender.health import Readiness
from gpuextender.webhook import AdmissionWebhook, SchedulerChoice, review_pod
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

Object = dict[str, Any]


def answered(
    item: object, namespace: str = "default", sub_resource: str = "", old: object = None
) -> Object:
    """The response to a review, without a server; the cluster has a GPU of 15 GiB."""
    health = Readiness([Known()], stale_after=60)
    health.loaded = True
    hook = AdmissionWebhook(
        state_of(a_node("n", 15)), health, profiles=SchedulerProfiles("gpushare-scheduler")
    )
    request: Object = {"uid": "r1", "namespace": namespace, "operation": "CREATE", "object": item}
    request["oldObject"] = old
    if sub_resource:
        request["subResource"] = sub_resource
    found: Object = hook.review(json.dumps({"request": request}).encode())["response"]
    return found


async def test_a_pod_of_ours_gets_our_scheduler(cluster: FakeApiServer, tmp_path: Path) -> None:
    """A JSON patch sets schedulerName where it is the default one, and only there."""
    make_certificate(tmp_path / "certificates", "one")
    async with webhook(cluster, tmp_path) as extender:
        await started(extender)
        response = await review(extender, pod("p", 2))
        assert response["allowed"]
        assert json.loads(base64.b64decode(response["patch"])) == [
            {"op": "add", "path": "/spec/schedulerName", "value": "gpushare-scheduler"}
        ]
        other = pod("q", 2)
        other["spec"]["schedulerName"] = "volcano"
        response = await review(extender, other)
        assert (response["allowed"], response.get("patch")) == (True, None)
        assert "volcano" in response["warnings"][0]


async def test_the_duration_of_reviews_is_measured() -> None:
    """Reviews that are answered with an error count too."""
    health = Readiness([Known()], stale_after=60)
    hook = AdmissionWebhook(state_of(a_node("n", 15)), health, profiles=SchedulerProfiles())
    name = "gpushare_extender_review_seconds_count"
    before = metrics.REGISTRY.get_sample_value(name) or 0
    assert (await hook.admit(b"{}")).status == 400
    assert metrics.REGISTRY.get_sample_value(name) == before + 1


def test_pods_that_are_not_ours_pass_untouched() -> None:
    """No request for our resources, kube-system, or no object at all: allowed, unchanged."""
    for item, namespace in ((pod("p"), "default"), (pod("p", 2), "kube-system"), (None, "d")):
        assert answered(item, namespace) == {"uid": "r1", "allowed": True}


def broken(kind: str) -> Object:
    """A pod that can never be right."""
    item = pod("p", 2)
    container = item["spec"]["containers"][0]
    limits = container["resources"]["limits"]
    if kind == "both":
        limits["aliyun.com/gpu"] = "1"
    if kind == "nvidia":
        limits["nvidia.com/gpu"] = "1"
    if kind == "sibling":
        limits_beside = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        item["spec"]["containers"].append({"name": "beside", **limits_beside})
    if kind == "visible":
        container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    if kind == "uneven":
        item["metadata"]["labels"] = {"aliyun.com/gpu-count": "3"}
    return item


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("both", "both exclusive GPUs and shares"),
        ("nvidia", "aliyun.com/gpu-mem and nvidia.com/gpu, which would allocate GPUs twice"),
        ("sibling", "aliyun.com/gpu-mem and nvidia.com/gpu, which would allocate GPUs twice"),
        ("visible", "container c0: sets NVIDIA_VISIBLE_DEVICES"),
        ("uneven", "does not divide evenly over its 3 GPUs"),
    ],
)
def test_what_can_never_be_right_is_refused_in_one_sentence(kind: str, words: str) -> None:
    """The author reads what to change, at once."""
    response = answered(broken(kind))
    assert not response["allowed"]
    assert response["status"]["code"] == 422
    assert words in response["status"]["message"]


def test_none_of_nvidias_gpus_is_no_second_request() -> None:
    """Templates of manifests write 0 for what a pod does not request."""
    item = pod("p", 2)
    item["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "0"
    assert answered(item)["allowed"]


def choosing(name: str, **item: object) -> Object:
    """A container that sets a variable."""
    return {"name": "x", "env": [{"name": name, "value": "all", **item}]}


@pytest.mark.parametrize("place", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("amount", "box"),
    [
        (0, choosing("NVIDIA_VISIBLE_DEVICES")),
        (2, choosing("NVIDIA_VISIBLE_DEVICES")),
        (2, choosing("NVIDIA_VISIBLE_DEVICES", valueFrom={"configMapKeyRef": {}}, value="")),
        (2, choosing("CUDA_MPS_PIPE_DIRECTORY")),
        (2, choosing("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")),
        (2, choosing("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")),
        (2, choosing("CGPU_DISABLE")),
        (2, {"name": "x", "envFrom": [{"prefix": "CUDA_MPS_", "configMapRef": {"name": "c"}}]}),
    ],
)
def test_no_pod_replaces_its_gpu_or_its_limit(place: str, amount: int, box: Object) -> None:
    """In any container of the pod, also in one that requests nothing."""
    item = pod("p", amount)
    item["spec"].setdefault(place, []).append(box)
    response = answered(item)
    assert not response["allowed"]
    assert "container x: sets " in response["status"]["message"]


def test_hiding_every_gpu_is_allowed() -> None:
    """Arena sets NVIDIA_VISIBLE_DEVICES=void in pods that need no GPU; so may everybody."""
    item = pod("p", 2)
    item["spec"]["containers"].append(choosing("NVIDIA_VISIBLE_DEVICES", value="void"))
    item["spec"]["containers"].append(choosing("CUDA_VISIBLE_DEVICES"))
    assert answered(item)["allowed"]


def test_a_debug_container_chooses_no_gpu() -> None:
    """Ephemeral containers are reviewed by themselves, and the pod is not changed any more."""
    item = pod("p", 2)
    item["spec"]["containers"].append(choosing("NVIDIA_VISIBLE_DEVICES"))
    item["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    fine = answered(item, sub_resource="ephemeralcontainers")
    assert fine == {"uid": "r1", "allowed": True}
    item["spec"]["ephemeralContainers"] = [choosing("NVIDIA_VISIBLE_DEVICES")]
    assert not answered(item, sub_resource="ephemeralcontainers")["allowed"]
    before = deepcopy(item)  # by an exempt user, or before the webhook was there
    item["spec"]["ephemeralContainers"].append({"name": "later"})
    assert answered(item, sub_resource="ephemeralcontainers", old=before)["allowed"]
    item["spec"]["ephemeralContainers"][1] |= choosing("NVIDIA_VISIBLE_DEVICES") | {"name": "later"}
    assert not answered(item, sub_resource="ephemeralcontainers", old=before)["allowed"]


async def test_an_amount_that_was_meant_in_mib_waits_with_a_warning(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The original's fourth sample is such a pod: it is created, and its author is warned."""
    make_certificate(tmp_path / "certificates", "one")
    async with webhook(cluster, tmp_path) as extender:
        await started(extender)
        await cluster.put("nodes", node("n", 15, unit="GiB"))
        await extender.knows_node("n")
        response = await review(extender, pod("p", 8192))
        assert response["allowed"]
        (warning,) = response["warnings"]
        assert warning == (
            "this pod requests 8192 aliyun.com/gpu-mem, the largest GPU has 15: if you meant MiB, "
            "request 8"
        )
        assert "gpushare-scheduler" in base64.b64decode(response["patch"]).decode()


def test_a_large_pod_may_wait_for_a_larger_node() -> None:
    """Too large for today's GPUs is no mistake: 80 units fit no GPU of 15, but may tomorrow."""
    assert answered(pod("p", 80))["allowed"]


async def test_certificates_rotate_without_a_restart(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """New connections are shown the new certificate; a broken one is not taken."""
    folder = tmp_path / "certificates"
    make_certificate(folder, "one")
    async with webhook(cluster, tmp_path) as extender:
        await started(extender)
        first = await shown(extender.service.listeners.admission.port)
        (folder / "tls.crt").write_text("not a certificate")
        assert await shown(extender.service.listeners.admission.port) == first
        make_certificate(folder, "two")
        async with asyncio.timeout(WAIT_SECONDS):
            while await shown(extender.service.listeners.admission.port) == first:
                assert extender.service.listeners.admission.started
        assert (await review(extender, pod("p", 2)))["allowed"]


async def test_it_waits_for_certificates_that_come_late(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A Secret may be filled after the pod started; the verbs do not wait for it."""
    async with webhook(cluster, tmp_path) as extender:
        await extender.ready()
        assert not extender.service.listeners.admission.started
        make_certificate(tmp_path / "certificates", "late")
        await started(extender)
        assert (await review(extender, pod("p", 2)))["allowed"]


async def test_what_is_nested_deep_keeps_no_pod_from_its_review(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The API server lets a pod pass whose review has no answer, and keeps its managedFields."""
    make_certificate(tmp_path / "certificates", "one")
    item = pod("p", 2)
    item["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    item["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": "deep"}]
    review = json.dumps({"request": {"uid": "r1", "namespace": "default", "object": item}})
    deep = '{"f:a":' * 5000 + "{}" + "}" * 5000
    async with webhook(cluster, tmp_path) as extender:
        await started(extender)
        url = f"https://127.0.0.1:{extender.service.listeners.admission.port}/admit"
        async with (
            aiohttp.ClientSession() as http,
            http.post(url, data=review.replace('"deep"', deep), ssl=False) as reply,
        ):
            assert reply.status == 200
            assert not (await reply.json())["response"]["allowed"]


async def test_a_pod_with_thousands_of_containers_is_refused_without_a_look_at_them(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A few such reviews, which need not be valid, would hold up those of all other pods."""
    make_certificate(tmp_path / "certificates", "one")
    async with webhook(cluster, tmp_path) as extender:
        await started(extender)
        for number, kind in enumerate(("containers", "initContainers")):
            item = pod("p", 2)
            item["spec"][kind] = item["spec"]["containers"] * 1001
            answer = await review(extender, item)
            assert not answer["allowed"]
            message = f"gpushare: has {1001 + number} containers, more than 1000"
            assert answer["status"]["message"] == message


def test_resources_of_others_take_a_review_no_time_beyond_reading_them() -> None:
    """An API server sends pods with 80,000 of them, and other reviews wait for this one."""
    item = pod("p", 2)
    limits = item["spec"]["containers"][0]["resources"]["limits"]
    limits |= {f"example.com/{each}": "1" for each in range(80_000)}
    raw = json.dumps(item).encode()
    read, choice = decode_pod(raw), SchedulerChoice(state_of(), SchedulerProfiles(), lambda: True)

    def shortest(work: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            begin = time.process_time()
            work()
            times.append(time.process_time() - begin)
        return min(times)

    review = shortest(
        lambda: review_pod(
            read, namespace="team", node_infos=(), names=DEFAULT_NAMES, choice=choice
        )
    )
    assert review < shortest(lambda: decode_pod(raw))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"request": {"uid": "r", "object": 3}}'])
async def test_what_is_no_review_is_answered_with_400(
    cluster: FakeApiServer, tmp_path: Path, body: bytes
) -> None:
    """The API server then follows its failure policy."""
    make_certificate(tmp_path / "certificates", "one")
    async with webhook(cluster, tmp_path) as extender:
        await started(extender)
        url = f"https://127.0.0.1:{extender.service.listeners.admission.port}/admit"
        async with (
            aiohttp.ClientSession() as http,
            http.post(url, data=body, ssl=False) as reply,
        ):
            assert reply.status == 400
            assert "AdmissionReview" in await reply.text()


def claimed(item: object, namespace: str = "default") -> Object:
    """The response for a pod of a namespace whose shares are claims."""
    health = Readiness([Known()], stale_after=60)
    health.loaded = True
    state = state_of(a_node("n", 15))
    how = ClaimRequests(state.names, GIB)
    hook = AdmissionWebhook(
        state, health, profiles=SchedulerProfiles("gpushare-scheduler"), claims=how
    )
    request = {"uid": "r1", "namespace": namespace, "operation": "CREATE", "object": item}
    found: Object = hook.review(json.dumps({"request": request}).encode(), how)["response"]
    return found


def test_in_a_namespace_of_claims_a_share_becomes_a_claim() -> None:
    """The cluster's own scheduler places it: the name of ours is not set."""
    changes = json.loads(base64.b64decode(claimed(pod("p", 2))["patch"]))
    paths = [change["path"] for change in changes]
    assert "/spec/resourceClaims" in paths
    assert "/spec/containers/0/resources/limits/aliyun.com~1gpu-mem" in paths
    assert "/spec/schedulerName" not in paths


def test_a_pod_that_names_its_node_keeps_its_request() -> None:
    """No scheduler would allocate a claim for it, so kubelet would wait for ever."""
    item = pod("p", 2)
    item["spec"]["nodeName"] = "n"
    assert claimed(item) == {"uid": "r1", "allowed": True}


def test_what_cannot_be_a_claim_is_steered_as_before_with_a_warning() -> None:
    """A gang stays with the extender."""
    item = pod("p", 2)
    item["metadata"]["labels"] = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    response = claimed(item)
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/schedulerName", "value": "gpushare-scheduler"}
    ]
    assert "not converted to a ResourceClaim: pods of a gang" in response["warnings"][0]


@pytest.mark.parametrize("gang", [False, True])
def test_an_amount_in_mib_is_named_where_shares_become_claims(*, gang: bool) -> None:
    """Either way the pod waits for ever; the other warnings stay too."""
    item = pod("p", 8192)
    item["spec"]["schedulerName"] = "volcano"
    if gang:
        item["metadata"]["labels"] = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    response = claimed(item)
    hint, *others = response["warnings"]
    assert hint.endswith("the largest GPU has 15: if you meant MiB, request 8")
    assert ("patch" in response) is not gang
    begins = ["scheduler volcano places", "this share is not converted"] if gang else []
    assert [other[:24] for other in others] == [begin[:24] for begin in begins]


def test_claims_change_neither_refusals_nor_exempt_pods() -> None:
    """What is wrong stays wrong, and kube-system passes untouched."""
    assert claimed(broken("visible"))["allowed"] is False
    assert claimed(pod("p", 2), "kube-system") == {"uid": "r1", "allowed": True}
    assert claimed(pod("p")) == {"uid": "r1", "allowed": True}
