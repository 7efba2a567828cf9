"""``gpushare defrag`` beside claims: it moves no pod with claims, and reports it."""

import pytest
from claimobjects import allocated, claim, device, request, resource_slice, uses
from drawncluster import FakeCluster
from invoking import Run

NOTHING: dict[str, str] = {}
HELD = "note: ResourceClaims hold GPUs (default/a-gpu): pods with claims are not moved"
WAITING = "note: pods with ResourceClaims wait (default/w): nothing is moved for them"


@pytest.fixture
def held(cluster: FakeCluster) -> FakeCluster:
    """Two GPUs of 15 GiB offered as claims, each with a share; a pod waits for 12 GiB."""
    cluster.node("n1", resources=NOTHING)
    cluster.add(resource_slice("n1", [device(0, 15), device(1, 15)]))
    cluster.pod("a", node="n1").add(claim("a-gpu", allocated("n1", 0, "7Gi"), pods=["a"]))
    cluster.add(claim("w-gpu", spec=request("12Gi")))
    cluster.pod("w", spec=uses("w-gpu"))
    return cluster


def test_a_pod_with_a_claim_that_waits_is_named(run: Run, held: FakeCluster) -> None:
    """With what it means; the answer itself is as without claims."""
    outcome = run("defrag", on=held)
    assert outcome.code == 0
    assert "nothing is evicted" in outcome.out
    assert outcome.err.splitlines() == [HELD, WAITING]


def test_a_goal_that_claims_keep_from_being_free_names_them(run: Run, held: FakeCluster) -> None:
    """The command ends with 1, because only a claim is in the way."""
    outcome = run("defrag", "--gpus", "2", on=held)
    assert outcome.code == 1
    assert HELD in outcome.err.splitlines()


def test_nothing_is_noted_without_claims(run: Run, cluster: FakeCluster) -> None:
    """Nor about claims of other drivers where no node offers GPUs as claims."""
    cluster.node("n1").pod("w", spec=uses("nic"))
    assert "ResourceClaims" not in run("defrag", on=cluster).err
