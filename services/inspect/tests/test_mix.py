"""``gpushare mix``: the kinds of pods that usually come, from the pods of the cluster."""

import json

from claimobjects import allocated, claim, device_class, request, template, uses
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpucore.workload.history import FEWEST_PODS


def busy(cluster: FakeCluster) -> FakeCluster:
    """Three quarters of the pods take 4 units, one quarter an exclusive GPU."""
    cluster.node("n", gpus=[Gpu(100)] * 4)
    for number in range(FEWEST_PODS):
        if number % 4:
            cluster.pod(f"p{number}", 4)
        else:
            cluster.pod(f"p{number}", limits={"aliyun.com/gpu": "1"})
    return cluster


def test_kinds_are_listed_with_their_part(cluster: FakeCluster, run: Run) -> None:
    """The most frequent first; exclusive GPUs are all of a GPU."""
    out = run("mix", on=busy(cluster)).out.splitlines()
    assert [line.split()[:4] for line in out] == [
        ["PART", "GPUS", "MEMORY", "COMPUTE"],
        ["75.0%", "1", "4", "0%"],
        ["25.0%", "1", "all", "all"],
    ]
    bare = run("mix", "--no-headers", on=cluster).out.splitlines()
    assert [line.split() for line in bare] == [line.split() for line in out[1:]]
    assert run("mix", "-o", "name", on=cluster).out == "mix/learned\n"


def test_the_document_has_the_same_kinds(cluster: FakeCluster, run: Run) -> None:
    """Parts add up to 1."""
    document = json.loads(run("mix", "-o", "json", on=busy(cluster)).out)
    assert (document["learned"], document["pods"]) == (True, FEWEST_PODS)
    assert [(one["part"], one.get("memUnits")) for one in document["kinds"]] == [
        (0.75, 4),
        (0.25, None),
    ]


def test_pods_with_claims_count_with_what_these_request(cluster: FakeCluster, run: Run) -> None:
    """By the claim or, before it is made, its template; in the unit of the nodes."""
    busy(cluster).add(device_class()).add(template("eight", request("8Gi", "25")))
    cluster.add(claim("own", allocated("n", 0, "2Gi"), spec=request("2Gi")))
    for number in range(FEWEST_PODS // 2):
        cluster.pod(f"t{number}", spec=uses(template_name="eight"))
        cluster.pod(f"o{number}", spec=uses("own"))
    out = run("mix", "--no-headers", on=cluster).out.splitlines()
    assert [line.split()[:4] for line in out] == [
        ["37.5%", "1", "4", "0%"],
        ["25.0%", "1", "2", "0%"],
        ["25.0%", "1", "8", "25%"],
        ["12.5%", "1", "all", "all"],
    ]


def test_few_pods_are_a_guess(cluster: FakeCluster, run: Run) -> None:
    """A sentence states what the policy uses then."""
    cluster.node("n", gpus=[Gpu(15)]).pod("one", 3)
    outcome = run("mix", on=cluster)
    assert outcome.out == ""
    assert "too few pods with GPUs to learn from (1)" in outcome.err
