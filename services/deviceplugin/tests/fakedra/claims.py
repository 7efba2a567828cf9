"""ResourceClaims of an API server in memory, on a node with some GPUs."""

import json
from pathlib import Path
from typing import Any

from gpucore.model import Gpu, Inventory
from gpucore.node.claims.prepare import ClaimPreparation, claim_node
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, GpuIndex, GpuUuid
from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.dra.holding import ClaimHolder
from gpudeviceplugin.state import NodeState
from gpukube.errors import NotFoundError

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
INVENTORY = Inventory(
    gpus=tuple(
        Gpu(GpuIndex(index), GpuUuid(f"GPU-{index}"), 16, memory_mib=16 * 1024)
        for index in range(2)
    ),
    unit=GIB,
)


def holding() -> ClaimHolder:
    """A node that counts claims."""
    return ClaimHolder(NodeState(GrantPolicy()))


class FakeClaims:
    """The claims that the API server has.

    Attributes:
        objects: by path.
        failure: every request gets it.
        requests: paths that were read.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.failure: Exception | None = None
        self.requests: list[str] = []

    async def get(self, path: str) -> bytes:
        """GET a claim."""
        self.requests.append(path)
        if self.failure is not None:
            raise self.failure
        if path not in self.objects:
            raise NotFoundError(f"GET {path}", status=404, message="not found")
        return self.objects[path]

    def add(self, uid: str, *gpus: int, gib: int = 4, **more: Any) -> None:
        """A claim ``c-<uid>`` of the namespace ``team`` with a share of each of ``gpus``."""
        results = [
            {
                "request": "gpu",
                "driver": CLAIM_DRIVER,
                "pool": "n1",
                "device": f"gpu-{index}",
                "shareID": f"share-{uid}-{index}",
                "consumedCapacity": {"memory": f"{gib}Gi", "compute": "0"},
            }
            for index in gpus
        ]
        allocation = {"devices": {"results": results, **more}}
        claim = {"metadata": {"uid": uid}, "status": {"allocation": allocation}}
        self.put(uid, json.dumps(claim).encode())

    def put(self, uid: str, raw: bytes) -> None:
        """Any bytes as the claim ``c-<uid>``."""
        self.objects[f"{CLAIMS}/c-{uid}"] = raw

    def remove(self, uid: str) -> None:
        """The claim does not exist any more."""
        del self.objects[f"{CLAIMS}/c-{uid}"]


def node() -> ClaimPreparation:
    """A node with two GPUs of 16 GiB."""
    return claim_node(INVENTORY, GrantPolicy(), "n1")


def cdi_claims(directory: Path) -> set[str]:
    """UIDs of the claims that have a CDI file; other files of ours are reported as they are."""
    prefix = "gpushare.io-claim_"
    return {path.name.removeprefix(prefix).removesuffix(".json") for path in directory.iterdir()}


def environment(directory: Path, uid: str) -> dict[str, str]:
    """What the container of a claim's only request is given."""
    raw = json.loads((directory / f"gpushare.io-claim_{uid}.json").read_text())
    (device,) = raw["devices"]
    return dict(item.split("=", 1) for item in device["containerEdits"]["env"])
