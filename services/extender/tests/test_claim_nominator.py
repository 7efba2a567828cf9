"""Nominations of pods with claims: which node, what is reserved, and what is written."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from decoded import encoded, state_of
from objects import node as node_object
from objects import pod as pod_object

from gpucore.accounting.claims import ClaimAccounts
from gpucore.scheduling.grouping import BY_LINKS
from gpucore.units import NodeName
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.constraints import all_constraints
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import Pod, decode_pod
from gpuextender.claims import nominator
from gpuextender.claims.nominator import ClaimNominator
from gpuextender.informers import ClaimHandler
from gpukube.errors import StatusError
from gpukube.testing.scripted import RecordedRequest

Object = dict[str, Any]


class Api:
    """Takes patches; ``refusal`` answers the next ones."""

    def __init__(self) -> None:
        self.patches: list[RecordedRequest] = []
        self.refusal: Exception | None = None

    async def json_patch(self, path: str, operations: Iterable[Object]) -> bytes:
        self.patches.append(RecordedRequest("PATCH", path, list(operations), 0.0))
        if self.refusal is not None:
            raise self.refusal
        return b"{}"

    async def get(self, path: str, **_: object) -> bytes:
        """A pod that another component nominated."""
        return encoded({"metadata": {"uid": "u-other"}, "status": {}})


class Bench:
    """Nodes with one GPU of 16 GiB each, as claims."""

    def __init__(self, *nodes: str, policy: str = "binpack", leads: bool = True) -> None:
        self.time, self.leading, self.api = 0.0, leads, Api()
        self.state = state_of(*(decode_node(encoded(ready(name))) for name in nodes))
        self.accounts = ClaimAccounts(self.state.ledger, CLAIM_DRIVER)
        self.nominator = ClaimNominator(
            self.state,
            self.accounts,
            self.api,  # type: ignore[arg-type]
            self._leads,
            policy=policy,
            grouping=BY_LINKS,
            limit=100,
            schedulers=("default-scheduler",),
            now=lambda: self.time,
        )
        self.state.add_event_handler(self.nominator.node_changed)
        self.state.candidates.on_change = self.nominator.node_changed
        for name in nodes:
            self.accounts.slice_changed(decode_slice(encoded(resource_slice(name))))
        self.nominator.classes.on_replace([decode_device_class(encoded(GPUSHARE))])
        self.claims = ClaimHandler(self.state, self.accounts, self.state.touched)
        for gib in (4, 8, 16):
            self.nominator.templates.on_update(template(gib), b"")

    async def _leads(self) -> bool:
        return self.leading

    def comes(self, name: str, gib: int, **more: Any) -> Pod:
        """A pending pod whose claim is to be made from a template."""
        item = pod(name, gib, **more)
        self.state.pod_changed(item)
        self.nominator.on_update(item, b"")
        return item

    async def round(self) -> None:
        """One round with its patches."""
        await self.nominator.round()
        await self.nominator.settle()

    def allocated(self, name: str, gib: int, node: str) -> None:
        """kube-scheduler allocated the claim of a pod."""
        found = decode_claim(encoded(claim(name, gib, node)))
        self.claims.on_update(found, b"")
        self.nominator.claims.on_update(found, b"")

    def used(self, node: str) -> int:
        """GiB that are held or reserved on a node."""
        found = self.state.ledger.node(NodeName(node))
        assert found is not None
        return found.used_units

    @property
    def written(self) -> list[tuple[str, str]]:
        """Pod and node of each patch; no node where it cleared."""
        return [
            (each.path.split("/")[6], each.body[-1].get("value", "")) for each in self.api.patches
        ]


GPUSHARE = {
    "metadata": {"name": "gpushare"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": "device.driver == 'gpu.gpushare.io'"
                    " && device.allowMultipleAllocations"
                }
            }
        ]
    },
}


def ready(name: str) -> Object:
    """A node without the device plugin."""
    item = node_object(name, 16, unit="GiB")
    item["metadata"].pop("annotations", None)
    item["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    return item


def resource_slice(name: str) -> Object:
    """One GPU of 16 GiB."""
    policy = {"validRange": {"min": "1Gi", "max": "16Gi", "step": "1Gi"}}
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": f"GPU-{name}"}, "index": {"int": 0}},
        "capacity": {"memory": {"value": "16Gi", "requestPolicy": policy}},
    }
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLAIM_DRIVER, "nodeName": name, "pool": pool, "devices": [device]}
    return {"metadata": {"name": f"{name}-s"}, "spec": spec}


def requests(gib: int, device_class: str = "gpushare") -> Object:
    """What a claim requests."""
    exactly = {"deviceClassName": device_class, "capacity": {"requests": {"memory": f"{gib}Gi"}}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(gib: int, **more: str) -> Any:
    """A ResourceClaimTemplate."""
    metadata = {"name": f"gib-{gib}", "namespace": "ns"}
    return decode_claim_template(
        encoded({"metadata": metadata, "spec": {"spec": requests(gib, **more)}})
    )


def claim(name: str, gib: int, node: str) -> Object:
    """A claim that is allocated for its pod."""
    result = {
        "request": "gpu",
        "driver": CLAIM_DRIVER,
        "pool": node,
        "device": "gpu-0",
        "shareID": "s",
        "consumedCapacity": {"memory": f"{gib}Gi"},
    }
    user = {"resource": "pods", "name": name, "uid": f"u-{name}"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    metadata = {"name": f"{name}-gpu", "namespace": "ns", "uid": f"c-{name}"}
    return {"metadata": metadata, "spec": requests(gib), "status": status}


def pod(name: str, gib: int, **more: Any) -> Pod:
    """A pending pod with a claim."""
    item = pod_object(name, 0, uid=f"u-{name}", namespace="ns", priority=more.get("priority", 0))
    item["spec"] |= {
        "schedulerName": more.get("scheduler", "default-scheduler"),
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": f"gib-{gib}"}],
    } | more.get("spec", {})
    item["status"] = {"phase": "Pending", "nominatedNodeName": more.get("nominated", "")}
    raw = json.dumps(item).encode()
    return decode_pod(raw, all_constraints(raw))


async def test_the_best_node_by_the_policy_is_nominated_and_reserved() -> None:
    """Before the claim exists: its template specifies what it requests."""
    bench = Bench("a", "b")
    bench.comes("one", 4)
    bench.comes("two", 8)
    bench.comes("three", 8)
    await bench.round()
    assert bench.written == [("one", "a"), ("two", "a"), ("three", "b")]
    assert (bench.used("a"), bench.used("b")) == (12, 8)


async def test_spread_nominates_the_emptier_node() -> None:
    """The policy is the extender's."""
    bench = Bench("a", "b", policy="spread")
    bench.comes("one", 4)
    bench.comes("two", 4)
    await bench.round()
    assert bench.written == [("one", "a"), ("two", "b")]


async def test_the_pod_of_the_highest_priority_chooses_first() -> None:
    """As in the queue of kube-scheduler."""
    bench = Bench("a")
    bench.comes("low", 16)
    bench.comes("high", 16, priority=5)
    await bench.round()
    assert bench.written == [("high", "a")]


async def test_an_allocated_claim_replaces_its_reservation() -> None:
    """On whatever node kube-scheduler allocated it; nothing counts twice."""
    bench = Bench("a", "b")
    bench.comes("one", 8)
    await bench.round()
    bench.allocated("one", 8, "b")
    assert (bench.used("a"), bench.used("b")) == (0, 8)
    await bench.round()
    assert len(bench.written) == 1


async def test_a_deleted_pod_reserves_nothing() -> None:
    """The next pod gets the place."""
    bench = Bench("a")
    gone = bench.comes("one", 16)
    await bench.round()
    bench.state.pod_gone(gone)
    bench.nominator.on_delete(gone)
    bench.comes("two", 16)
    await bench.round()
    assert bench.written == [("one", "a"), ("two", "a")]


async def test_a_nomination_that_is_not_used_is_cleared() -> None:
    """Its place is free for others at once, and the pod is nominated again after a pause."""
    bench = Bench("a")
    bench.comes("one", 16)
    await bench.round()
    bench.time += nominator.KEPT_SECONDS
    await bench.round()
    assert bench.written == [("one", "a"), ("one", "")]
    assert bench.used("a") == 0
    bench.time += 1
    await bench.round()
    assert bench.written[2:] == [("one", "a")]


async def test_a_pod_that_is_never_placed_keeps_no_memory() -> None:
    """After three nominations that were not used it is left alone for two minutes."""
    bench = Bench("a")
    bench.comes("stuck", 16)
    for _ in range(160):
        bench.time += 1
        await bench.round()
        if bench.time > 60:
            assert bench.used("a") == 0


async def test_a_nomination_of_somebody_else_stays() -> None:
    """kube-scheduler nominates where it evicts pods."""
    bench = Bench("a")
    bench.comes("other", 4, nominated="b")
    await bench.round()
    assert bench.written == []


async def test_a_patch_names_the_pod_and_the_nomination_that_it_replaces() -> None:
    """The API server refuses it where the pod is another or was nominated meanwhile."""
    bench = Bench("a")
    bench.comes("one", 4)
    bench.api.refusal = StatusError("PATCH", status=422, message="nominated meanwhile")
    await bench.round()
    tests = [each for each in bench.api.patches[0].body if each["op"] == "test"]
    assert tests == [
        {"op": "test", "path": "/metadata/uid", "value": "u-one"},
        {"op": "test", "path": "/status/nominatedNodeName", "value": None},
    ]
    assert bench.used("a") == 0


async def test_pods_that_kube_scheduler_alone_can_judge_are_left_to_it() -> None:
    """Gates, other schedulers, unknown templates, host ports, and devices of other drivers."""
    bench = Bench("a")
    bench.nominator.templates.on_update(template(4, device_class="nics"), b"")
    bench.comes("other-driver", 4)
    bench.comes("gated", 8, spec={"schedulingGates": [{"name": "g"}]})
    bench.comes("other-scheduler", 8, scheduler="volcano")
    bench.comes("unknown", 5)
    port = {"name": "c", "ports": [{"hostPort": 80}]}
    bench.comes("port", 8, spec={"containers": [port]})
    await bench.round()
    assert bench.written == []


async def test_only_the_leader_nominates_and_a_former_one_reserves_nothing() -> None:
    """Two replicas never reserve for one pod at a time for long."""
    bench = Bench("a", leads=False)
    bench.comes("one", 4)
    await bench.round()
    assert bench.written == []
    bench.leading = True
    await bench.round()
    assert bench.used("a") == 4
    bench.leading = False
    await bench.round()
    assert bench.used("a") == 0


async def test_a_node_that_kube_scheduler_would_refuse_is_not_nominated() -> None:
    """Selectors, taints, cpu and memory count as in its own filters."""
    bench = Bench("a", "b")
    bench.comes("picky", 4, spec={"nodeSelector": {"kubernetes.io/hostname": "nowhere"}})
    await bench.round()
    assert bench.written == []


async def test_a_round_is_woken_by_a_pod_and_by_freed_memory() -> None:
    """Not by a timer alone."""
    bench = Bench("a")
    held = bench.comes("one", 16)
    await bench.round()
    bench.comes("two", 16)
    await bench.round()
    bench.nominator.woken.clear()
    bench.state.pod_gone(held)
    assert bench.nominator.woken.is_set()
    bench.nominator.on_delete(held)
    task = asyncio.create_task(bench.nominator.run())
    async with asyncio.timeout(60):
        while len(bench.written) < 2:  # noqa: ASYNC110 - the loop under test works between
            await asyncio.sleep(0)
    task.cancel()
    assert bench.written[1:] == [("two", "a")]
