"""``gpushare mix``: the kinds of pods that usually come, from the pods of the cluster."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from claimobjects import allocated, claim, device_class, request, template, uses
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpucore.workload.arrivals import Arrival
from gpucore.workload.history import FEWEST_PODS
from gpucore.workload.pod_mix import PodKind
from gpucore.workload.saved_history import KEY, VERSION, SavedHistory, encode_history, saved_part


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


def extender(cluster: FakeCluster, *, created: str = "2026-01-01T00:00:00Z", at: str) -> None:
    """A pod with the extender, which keeps its history in the ConfigMap of this name."""
    name, labels = f"extender-{created}", {"app.kubernetes.io/component": "scheduler"}
    box = {"name": "extender", "args": ["--policy=fragmentation", f"--mix-history={at}"]}
    metadata = {"labels": labels, "creationTimestamp": created}
    cluster.pod(name, namespace="gpushare", metadata=metadata, spec={"containers": [box]})


def kept(namespace: str, text: str) -> dict[str, Any]:
    """A ConfigMap as the extender's, in a namespace."""
    metadata = {"name": "release-extender-mix", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}


def history(units: int) -> str:
    """Pods of so many units that are deleted."""
    arrival = Arrival("team", PodKind(1, units))
    part = saved_part(arrival, float(FEWEST_PODS))
    return encode_history(SavedHistory(time.time() - 3600, FEWEST_PODS, (part,), VERSION))


OURS = "gpushare/release-extender-mix"


@pytest.mark.parametrize(
    ("at", "maps", "expected"),
    [
        (OURS, {"gpushare": history(8)}, ["8"]),
        (OURS, {"team": history(4), "gpushare": history(8)}, ["8"]),
        (OURS, {"team": history(4)}, []),
        (OURS, {"gpushare": "no history"}, []),
        ("", {"gpushare": history(8)}, []),
    ],
    ids=["kept", "of a tenant beside it", "of a tenant", "unreadable", "not kept"],
)
def test_pods_that_the_extender_remembers_count(
    at: str, maps: Mapping[str, str], expected: list[str], cluster: FakeCluster, run: Run
) -> None:
    """Only what its own flag names; whoever runs a pod like it later is not heard."""
    cluster.node("n", gpus=[Gpu(16)])
    extender(cluster, at=at)
    extender(cluster, at="team/release-extender-mix", created="2026-01-02T00:00:00Z")
    for namespace, text in maps.items():
        cluster.add(kept(namespace, text))
    lines = run("mix", "--no-headers", on=cluster).out.splitlines()
    assert [line.split()[2] for line in lines] == expected


def test_whatif_places_by_the_pods_that_the_extender_remembers(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    """Pods of 8 units come often: four units go where two such pods still find room."""
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    cluster.pod("half", 8, node="n", index=0).pod("quarter", 4, node="n", index=1)
    extender(cluster, at=OURS)
    manifest = tmp_path / "pod.json"
    limits = {"aliyun.com/gpu-mem": 4}
    box = {"name": "c", "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}}
    manifest.write_text(json.dumps({**pod, "spec": {"containers": [box]}}))

    def gpus() -> list[str]:
        out = run("whatif", "-f", str(manifest), "-o", "json", on=cluster).out
        return [index for item in json.loads(out)["items"] for index in item["gpus"]]

    cluster.add(kept("gpushare", history(8)))
    assert gpus() == ["1"]
    cluster.items[-1] = kept("gpushare", history(4))
    assert gpus() == ["0"]
