"""Pods with claims, nodes that offer GPUs to them, and the nominator, without sockets."""

import json
from collections.abc import Iterable
from typing import Any

from decoded import encoded, state_of
from objects import node as node_object
from objects import pod as pod_object

from gpucore.accounting.claims import ClaimAccounts
from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.constraints import decode_pod
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import Pod
from gpuextender.claims.nominator import ClaimNominator
from gpuextender.informers import ClaimHandler
from gpuextender.nomination.writes import MANAGER
from gpukube.testing.scripted import RecordedRequest

Object = dict[str, Any]


class Api:
    """Takes patches; ``refusal`` answers the next ones."""

    def __init__(self) -> None:
        self.patches: list[RecordedRequest] = []
        self.refusal: Exception | None = None
        self.pods: dict[str, Object] = {}

    async def json_patch(self, path: str, operations: Iterable[Object]) -> bytes:
        self.patches.append(RecordedRequest("PATCH", path, list(operations), 0.0))
        if self.refusal is not None:
            raise self.refusal
        return b"{}"

    async def get(self, path: str, **_: object) -> bytes:
        """A pod as it is known here, else one that another component nominated."""
        other: Object = {"metadata": {"uid": "u-other"}, "status": {}}
        return encoded(self.pods.get(path.rpartition("/")[2], other))

    def nominated_by_us(self, pod: Pod) -> None:
        """Reads show that an extender nominated this pod."""
        fields = {"f:status": {"f:nominatedNodeName": {}}}
        managed = [{"manager": MANAGER, "fieldsV1": fields}]
        metadata = {"uid": pod.uid, "resourceVersion": "7", "managedFields": managed}
        status = {"nominatedNodeName": pod.nominated}
        self.pods[pod.name] = {"metadata": metadata, "status": status}


class Bench:
    """Nodes with one GPU each, of 16 GiB or of ``gpu`` GiB, as claims."""

    def __init__(
        self,
        *nodes: str,
        policy: str = "binpack",
        leads: bool = True,
        limit: int = 100,
        gpu: int = 16,
        gpus: int = 1,
    ) -> None:
        self.time, self.leading, self.api = 0.0, leads, Api()
        self.asked = 0
        self.state = state_of(*(decode_node(encoded(ready(name, gpu))) for name in nodes))
        self.accounts = ClaimAccounts(self.state.ledger)
        self.nominator = ClaimNominator(
            self.state,
            self.accounts,
            self.api,  # type: ignore[arg-type]
            self._leads,
            rules=Rules(policy),
            limit=limit,
            schedulers=("default-scheduler",),
            now=lambda: self.time,
        )
        self.state.add_event_handler(self.nominator.node_changed)
        self.state.candidates.on_change = self.nominator.node_changed
        for name in nodes:
            self.accounts.slice_changed(decode_slice(encoded(resource_slice(name, gpu, gpus))))
        self.nominator.classes.on_replace([decode_device_class(encoded(GPUSHARE))])
        self.claims = ClaimHandler(self.state, self.accounts, self.state.touched)
        for gib in (4, 8, 16):
            self.nominator.templates.on_update(template(gib), b"")

    async def _leads(self) -> bool:
        self.asked += 1
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

    def given_back(self, name: str, gib: int) -> None:
        """kube-scheduler took the allocation of a claim back."""
        found = decode_claim(encoded(claim(name, gib, "") | {"status": {}}))
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


def ready(name: str, gib: int = 16) -> Object:
    """A node without the device plugin."""
    item = node_object(name, gib, unit="GiB")
    item["metadata"].pop("annotations", None)
    item["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    return item


def resource_slice(name: str, gib: int = 16, gpus: int = 1) -> Object:
    """GPUs of 16 GiB unless it is another size."""
    policy = {"validRange": {"min": "1Gi", "max": f"{gib}Gi", "step": "1Gi"}}
    devices = [
        {
            "name": f"gpu-{index}",
            "allowMultipleAllocations": True,
            "attributes": {
                "uuid": {"string": f"GPU-{name}" + (f"-{index}" if index else "")},
                "index": {"int": index},
                "productName": {"string": "Tesla T4"},
            },
            "capacity": {"memory": {"value": f"{gib}Gi", "requestPolicy": policy}},
        }
        for index in range(gpus)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLAIM_DRIVER, "nodeName": name, "pool": pool, "devices": devices}
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
    status = {"phase": "Pending", "nominatedNodeName": more.get("nominated", "")}
    item["status"] = status | more.get("status", {})
    raw = json.dumps(item).encode()
    return decode_pod(raw)
