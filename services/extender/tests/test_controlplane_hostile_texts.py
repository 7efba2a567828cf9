"""What the API server stores of a tenant, and every reader of all pods has to read.

It takes amounts of CPU and memory of any size, and keeps what is nested thousands deep.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from planes import Source
from running import Running, until

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane
from gpucore.wire.pod.requests import MOST_ANNOTATION_BYTES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PODS: Final = "/api/v1/namespaces/default/pods"
CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NODE: Final = "node-00000"
HOSTILE_PODS: Final = 7
DEPTH: Final = 4000
"""Of a parser of Python 3.11 the deepest is 1,000, of 3.12 1,500."""


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: the objects stay."""
    with control_plane() as one:
        yield one


def hostile_pods() -> Iterator[Any]:
    """Pods that no scheduler could ever place, as a tenant may create them."""
    amounts = [("cpu", "1e999"), ("cpu", "1" * 5000), ("memory", "9" * 70)]
    amounts += [("memory", "1e90"), ("aliyun.com/gpu-mem", "9E"), ("cpu", "1e-90")]
    for number, (resource, amount) in enumerate(amounts):
        item = fakenodes.pod(f"amount-{number}", 1, scheduler="none")
        item["spec"]["containers"][0]["resources"]["limits"][resource] = amount
        yield item
    item = fakenodes.pod("nested", 1, scheduler="none")
    fields = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": "deep"}
    item["metadata"]["managedFields"] = [{**fields, "fieldsType": "FieldsV1"}]
    yield nested(item, '{"f:metadata":', "{}", "}")


def hostile_claim() -> Any:
    """A claim with parameters of a driver that does not exist."""
    opaque = {"driver": "d.example", "parameters": {"a": "deep"}}
    request = {"name": "r", "exactly": {"deviceClassName": "none"}}
    devices = {"requests": [request], "config": [{"opaque": opaque}]}
    item = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "nested", "namespace": "default"},
        "spec": {"devices": devices},
    }
    return nested(item, "[", "", "]")


def nested(item: Any, before: str, inside: str, after: str) -> Any:
    """The object with a deep value in place of the text ``deep``."""
    deep = before * DEPTH + inside + after * DEPTH
    return msgspec.Raw(json.dumps(item).replace('"deep"', deep).encode())


def waiting(extender: Running) -> int:
    """How many pods without a node it knows."""
    return sum(1 for _ in extender.state.waiting())


async def create_hostile(calls: ApiCalls) -> None:
    """All of them are accepted."""
    for item in hostile_pods():
        await calls.call("POST", PODS, item)
    await calls.call("POST", CLAIMS, hostile_claim())


async def test_no_text_of_a_tenant_hides_the_pods_of_others(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """In a watch, and in the first list of the next extender; claims are read, too."""
    async with ApiCalls.to(plane) as calls:
        await calls.create("/api/v1/nodes", fakenodes.nodes(1))
        for number in range(2):
            folder = tmp_path / str(number)
            folder.mkdir()
            async with Running(Source(plane), folder, claims=True) as extender:
                await extender.ready()
                if not number:
                    await create_hostile(calls)
                (item,) = fakenodes.running(1, 1)
                item["metadata"]["name"] = f"running-{number}"
                made = json.loads(await calls.call("POST", PODS, item))
                await extender.knows_pod(made["metadata"]["uid"])
                await until("all pods wait", lambda: waiting(extender) == HOSTILE_PODS)
                assert not extender.service.health.obstacle()


def annotated(name: str) -> Any:
    """A pod with as many annotations as the API server takes."""
    item = fakenodes.pod(name, 4, scheduler="none")
    item["metadata"]["annotations"] = {"note": "x" * (MOST_ANNOTATION_BYTES - len("note"))}
    return item


async def test_a_pod_without_room_for_its_annotations_is_refused(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Otherwise kubelet could never report it, and nothing could evict it."""
    async with ApiCalls.to(plane) as calls:
        await calls.create("/api/v1/nodes", fakenodes.nodes(1))
        await calls.call("POST", PODS, annotated("theirs"))
        node = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"metadata": {"name": "theirs", "annotations": {"a": "b"}}, "target": node}
        await calls.call("POST", f"{PODS}/theirs/binding", binding)
        phase = {"status": {"phase": "Running"}}
        path = f"{PODS}/theirs/status"
        answer = await calls.call("PATCH", path, phase, kind=MERGE_PATCH, fine=(422,))
        assert b"Too long: may not be more than 262144 bytes" in answer
        async with Running(Source(plane), tmp_path) as extender:
            await extender.ready()
            pod = json.loads(await calls.call("POST", PODS, annotated("ours")))
            found = await extender.filter(pod, NODE)
            assert not found["NodeNames"]
            (reason,) = found["FailedNodes"].values()
            assert "leaves no room for those that record its GPUs" in reason
            status, _ = await extender.bind(pod, NODE)
            bound = json.loads(await calls.call("GET", f"{PODS}/ours"))
            assert (status, bound["spec"].get("nodeName")) == (500, None)
