"""ResourceSlices and ResourceClaims in the extender: state, metrics and /api/v1."""

import json
from typing import Any

import pytest
from decoded import Touched, state_of

from gpucore.accounting.claims import ClaimAccounts
from gpucore.units import NodeName
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.lists import event_of, page_of
from gpucore.wire.node.spec import Node
from gpuextender.http import views
from gpuextender.informers import CLAIMS, SLICES, ClaimHandler, SliceHandler
from gpuextender.metrics import LedgerMetrics
from gpuextender.state import State

N1 = NodeName("n1")
Object = dict[str, Any]


def resource_slice(taint: bool = False) -> Object:
    """One GPU of 15 GiB on n1."""
    policy = {"validRange": {"min": "1Gi", "max": "15Gi", "step": "1Gi"}}
    device: Object = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": "GPU-0"}, "index": {"int": 0}},
        "capacity": {"memory": {"value": "15Gi", "requestPolicy": policy}},
    }
    if taint:
        device["taints"] = [{"key": "gpu.gpushare.io/unhealthy", "effect": "NoSchedule"}]
    return {
        "metadata": {"name": "n1-s", "resourceVersion": "1"},
        "spec": {
            "driver": "gpu.gpushare.io",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }


def claim(name: str, memory: str) -> Object:
    """A claim of pod ``p-<name>``."""
    result = {
        "request": "gpu",
        "driver": "gpu.gpushare.io",
        "pool": "n1",
        "device": "gpu-0",
        "shareID": "s",
        "consumedCapacity": {"memory": memory},
    }
    user = {"resource": "pods", "name": f"p-{name}", "uid": f"u-{name}"}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"c-{name}"},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]},
    }


def handlers(state: State) -> tuple[SliceHandler, ClaimHandler]:
    """Those of slices and of claims."""
    accounts = ClaimAccounts(state.ledger)
    return (
        SliceHandler(accounts, state.touched),
        ClaimHandler(state, accounts, state.touched),
    )


def listed(*items: Object) -> bytes:
    """A list of the API server."""
    return json.dumps({"metadata": {"resourceVersion": "9"}, "items": list(items)}).encode()


@pytest.fixture
def state() -> State:
    """A state with a node without the device plugin."""
    return state_of(Node(N1))


@pytest.fixture
def touched(state: State) -> Touched:
    """The nodes that the state reports."""
    found = Touched()
    state.add_event_handler(found)
    found.taken()
    return found


async def test_claims_are_in_the_ledger_and_every_change_is_reported(
    state: State, touched: Touched
) -> None:
    """Lists, events and deletions; metrics are written again for the nodes that changed."""
    slices, claims = handlers(state)
    slices.on_replace(page_of(listed(resource_slice()), decode_slice).items)
    assert touched.taken() == {"n1"}
    claims.on_replace(page_of(listed(claim("a", "7Gi")), decode_claim).items)
    assert touched.taken() == {"n1"}
    info = state.ledger.node(N1)
    assert info is not None
    assert (info.total_units, info.used_units) == (15, 7)
    line = json.dumps({"type": "MODIFIED", "object": claim("a", "8Gi")}).encode()
    event = event_of(line, decode_claim)
    assert event.item is not None
    claims.on_update(event.item, line)
    assert (info.used_units, touched.taken()) == (8, {"n1"})
    claims.on_delete(event.item)
    assert (info.used_units, touched.taken()) == (0, {"n1"})


async def test_the_read_api_names_the_pod_of_a_claim(state: State) -> None:
    """As the original's inspect does."""
    slices, claims = handlers(state)
    slices.on_replace(page_of(listed(resource_slice()), decode_slice).items)
    claims.on_replace(page_of(listed(claim("a", "7Gi")), decode_claim).items)
    info = state.ledger.node(N1)
    assert info is not None
    pod = views.node_view(info).gpus[0].pods[0]
    assert (pod.namespace, pod.name, pod.uid) == ("ns", "p-a", "u-a")


async def test_over_commitment_raises_the_figure_of_the_alert(state: State) -> None:
    """Kubernetes prevents it; the ledger checks it all the same."""
    slices, claims = handlers(state)
    slices.on_replace(page_of(listed(resource_slice()), decode_slice).items)
    claims.on_replace(page_of(listed(claim("a", "8Gi"), claim("b", "7Gi")), decode_claim).items)
    gauges = LedgerMetrics(state.ledger, lambda: (), state.candidates)
    assert "gpushare_extender_overfull_gpus{" not in (await gauges.render()).decode()
    claims.on_replace(page_of(listed(claim("a", "8Gi"), claim("b", "8Gi")), decode_claim).items)
    gauges.node_changed(N1)
    overfull = f'gpushare_extender_overfull_gpus{{gpu="0",node="{N1}"}} 1'
    assert overfull in (await gauges.render()).decode()
    assert 'state="bound"} 0' in (await gauges.render()).decode(), "the alert of unconfirmed pods"


def test_only_slices_of_our_driver_are_requested() -> None:
    """The API server selects them; claims have no such field."""
    assert SLICES.params == {"fieldSelector": "spec.driver=gpu.gpushare.io"}
    assert CLAIMS.params == {}
