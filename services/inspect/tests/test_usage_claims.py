"""``gpushare usage`` for claims: whose they are, who waits, and what is no part of a namespace."""

import json
from typing import Any

import pytest
from claimobjects import (
    allocated,
    claim,
    device,
    device_class,
    request,
    resource_slice,
    template,
    uses,
)
from drawncluster import FakeCluster
from invoking import Run

NOTHING: dict[str, str] = {}
TEAM = {"labels": {"team": "red"}}


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    """Two GPUs of 15 GiB that are offered as claims."""
    cluster.node("n", resources=NOTHING)
    cluster.add(resource_slice("n", [device(0, 15), device(1, 15)]))
    return cluster.add(device_class())


def groups(run: Run, cluster: FakeCluster, *flags: str) -> dict[str, dict[str, Any]]:
    """The groups by name."""
    found = run("usage", *flags, "-o", "json", on=cluster)
    assert found.code == 0, found.err
    return {item["name"]: item for item in json.loads(found.out)["items"]}


def figures(run: Run, cluster: FakeCluster, *flags: str) -> dict[str, tuple[int, int, int]]:
    """Memory allocated, pending pods and their memory, by group."""
    found = groups(run, cluster, *flags)
    return {
        name: (item["allocated"], item["pendingPods"], item["pending"])
        for name, item in found.items()
    }


def waits(cluster: FakeCluster, name: str, *, namespace: str = "default", **more: Any) -> None:
    """A pod without a node that requests 4 GiB by a claim template."""
    body = {"schedulerName": "default-scheduler", **uses(template_name="t")}
    cluster.pod(name, **{"phase": "Pending", "namespace": namespace, "spec": body, **more})


def test_claims_without_a_pod_count_for_their_namespace_alone(
    run: Run, cluster: FakeCluster
) -> None:
    """With -n those of other namespaces are left out; they have no label of any pod."""
    cluster.add(claim("a", allocated("n", 0, "2Gi"), namespace="one"))
    cluster.add(claim("b", allocated("n", 0, "3Gi"), namespace="two"))
    assert figures(run, cluster, "-n", "one") == {"one": (2, 0, 0)}
    assert figures(run, cluster, "-A") == {"one": (2, 0, 0), "two": (3, 0, 0)}
    assert figures(run, cluster, "-A", "--by", "label:team") == {"<none>": (5, 0, 0)}


def test_pods_that_wait_for_claims_count_for_their_group(run: Run, cluster: FakeCluster) -> None:
    """Not one that has ended without a node, and with -n not those of other namespaces."""
    for namespace in ("default", "other"):
        cluster.add(template("t", request("4Gi"), namespace))
    waits(cluster, "w", metadata=TEAM)
    waits(cluster, "x", namespace="other")
    waits(cluster, "ended", phase="Failed")
    assert figures(run, cluster, "-A") == {"default": (0, 1, 4), "other": (0, 1, 4)}
    assert figures(run, cluster, "-n", "default") == {"default": (0, 1, 4)}
    by_label = figures(run, cluster, "-A", "--by", "label:team")
    assert by_label == {"<none>": (0, 1, 4), "red": (0, 1, 4)}


def test_a_pod_whose_claim_is_allocated_does_not_wait_for_it(
    run: Run, cluster: FakeCluster
) -> None:
    """The memory is allocated, although the pod has no node yet."""
    cluster.pod("p", phase="Pending", spec=uses("c"))
    cluster.add(claim("c", allocated("n", 0, "4Gi"), pods=["p"]))
    assert figures(run, cluster, "-A") == {"default": (4, 0, 0)}


def test_the_memory_of_a_claim_counts_once_for_all_pods_that_name_it(
    run: Run, cluster: FakeCluster
) -> None:
    """While it is not allocated, and once it is."""
    for name in ("p", "q"):
        cluster.pod(name, phase="Pending", spec=uses("c"))
    cluster.add(claim("c", spec=request("4Gi")))
    assert figures(run, cluster, "-A") == {"default": (0, 2, 4)}
    cluster.items = [each for each in cluster.items if each["kind"] != "ResourceClaim"]
    cluster.add(claim("c", allocated("n", 0, "4Gi"), pods=["p"], spec=request("4Gi")))
    assert figures(run, cluster, "-A") == {"default": (4, 1, 0)}


def test_all_claims_of_a_pod_are_one_pod(run: Run, cluster: FakeCluster) -> None:
    """With the memory of both."""
    both = [{"name": each, "resourceClaimName": each} for each in ("c", "d")]
    cluster.pod("p", node="n", spec={"resourceClaims": both})
    for index, name in enumerate(("c", "d")):
        cluster.add(claim(name, allocated("n", index, "4Gi"), pods=["p"]))
    found = groups(run, cluster, "-A")["default"]
    assert (found["pods"], found["allocated"]) == (1, 8)


@pytest.mark.parametrize(("by", "name"), [("node", "n"), ("model", "Tesla T4")])
def test_pods_are_counted_and_not_their_claims(
    run: Run, cluster: FakeCluster, by: str, name: str
) -> None:
    """A pod with claims on two GPUs is one, and a claim that no pod uses is none."""
    both = [{"name": each, "resourceClaimName": each} for each in ("c", "d")]
    cluster.pod("p", node="n", spec={"resourceClaims": both})
    for index, each in enumerate(("c", "d")):
        cluster.add(claim(each, allocated("n", index, "4Gi"), pods=["p"]))
    cluster.add(claim("unused", allocated("n", 1, "2Gi")))
    found = groups(run, cluster, "--by", by)[name]
    assert (found["pods"], found["allocated"]) == (1, 10)
