"""Nominations of pods with claims: which node, what is reserved, and what is written."""

import asyncio
from typing import Any

import pytest
from claimbench import Bench, requests, template
from decoded import encoded

from gpucore.wire.claim.claim_specs import decode_claim_template
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.names import CLAIM_DRIVER
from gpuextender.claims import nominator
from gpukube.errors import StatusError


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


async def test_a_claim_that_several_pods_name_is_reserved_once() -> None:
    """It is allocated once for all of them; a pod with a claim of its own gets the rest."""
    bench = Bench("a")
    named = {"metadata": {"name": "model", "namespace": "ns"}, "spec": requests(8)}
    bench.nominator.claims.on_update(decode_claim(encoded(named)), b"")
    for name in ("one", "two"):
        bench.comes(
            name, 8, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "model"}]}
        )
    bench.comes("three", 8)
    await bench.round()
    assert bench.written == [("one", "a"), ("three", "a")]
    assert bench.used("a") == 16


def many(count: int, requests: int = 1, constraints: int = 0, selectors: int = 0) -> Any:
    """A template of requests for so many devices of 1 GiB, and selectors of 1,024 characters."""
    expression = f"device.driver == '{CLAIM_DRIVER}'".ljust(1024)
    exactly = {
        "deviceClassName": "gpushare",
        "count": count,
        "capacity": {"requests": {"memory": "1Gi"}},
        "selectors": [{"cel": {"expression": expression}}] * selectors,
    }
    named = [{"name": f"r{number}", "exactly": exactly} for number in range(requests)]
    rules = [{"matchAttribute": f"{CLAIM_DRIVER}/productName"}] * constraints
    metadata = {"name": "gib-8", "namespace": "ns"}
    spec = {"spec": {"devices": {"requests": named, "constraints": rules}}}
    return decode_claim_template(encoded({"metadata": metadata, "spec": spec}))


@pytest.mark.parametrize(
    ("hostile", "nominated"),
    [
        (many(32), True),
        (many(33), False),
        (many(1024), False),
        (many(30, requests=30), False),
        (many(32, constraints=1), True),
        (many(32, constraints=2), False),
        (many(1, requests=2, selectors=2), True),
        (many(1, requests=5, selectors=1), False),
    ],
)
async def test_a_claim_that_takes_long_to_compare_concerns_its_own_pod_alone(
    hostile: Any, *, nominated: bool
) -> None:
    """kube-scheduler places it without a nomination, or never; the next pod gets its node."""
    bench = Bench("a", gpu=2048, gpus=32)
    bench.nominator.templates.on_update(hostile, b"")
    bench.comes("hostile", 8)
    bench.comes("other", 4)
    await bench.round()
    assert bench.written == [*([("hostile", "a")] if nominated else []), ("other", "a")]


async def test_a_pod_is_not_nominated_to_a_node_with_fewer_gpus_than_its_request() -> None:
    """kube-scheduler allocates the devices of one request on GPUs that differ."""
    bench = Bench("a")
    bench.nominator.templates.on_update(many(2), b"")
    bench.comes("one", 8)
    await bench.round()
    assert bench.written == []
    assert bench.used("a") == 0


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
    """Gates, other schedulers and templates, ports, other drivers, too many constraints."""
    bench = Bench("a")
    bench.nominator.templates.on_update(template(4, device_class="nics"), b"")
    bench.comes("other-driver", 4)
    bench.comes("gated", 8, spec={"schedulingGates": [{"name": "g"}]})
    bench.comes("other-scheduler", 8, scheduler="volcano")
    bench.comes("unknown", 5)
    port = {"name": "c", "ports": [{"hostPort": 80}]}
    bench.comes("port", 8, spec={"containers": [port]})
    bench.comes("large", 8, spec={"tolerations": [{"operator": "Exists"}] * 1001})
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
