"""``gpushare mix``: the kinds of pods that usually come, from the pods of the cluster."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from claimobjects import allocated, claim, device_class, request, template, uses
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpucore.units import NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.workload.arrivals import (
    HISTORY_KEY,
    VERSION,
    Arrival,
    SavedHistory,
    encode_history,
    saved_part,
)
from gpucore.workload.history import FEWEST_PODS
from gpucore.workload.mix_in_use import KEY as MIX
from gpucore.workload.mix_in_use import encode_mix
from gpucore.workload.pod_mix import PodKind, PodMix
from gpuinspect.cluster.snapshots import decode
from gpuinspect.web.frames import Frame


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


def extender(
    cluster: FakeCluster,
    *,
    created: str = "2026-01-01T00:00:00Z",
    at: str,
    namespace: str = "gpushare",
    started: str = "",
) -> None:
    """A pod with the extender, which keeps its history in the ConfigMap of this name."""
    name, labels = f"extender-{created}", {"app.kubernetes.io/component": "scheduler"}
    box = {"name": "extender", "args": ["--policy=fragmentation", f"--mix-history={at}"]}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    boxes = [
        {"name": "kube-scheduler", "state": {"running": {"startedAt": created}}},
        {"name": "extender", "state": {"running": {"startedAt": started}}},
    ]
    cluster.pod(
        name,
        namespace=namespace,
        metadata={**metadata, "creationTimestamp": created},
        spec={"containers": [box]},
        status={"containerStatuses": boxes} if started else {},
    )


def kept(namespace: str, text: str, published: str | None = None) -> dict[str, Any]:
    """A ConfigMap as the extender's, in a namespace."""
    metadata = {"name": "release-extender-mix", "namespace": namespace}
    data = {HISTORY_KEY: text} | ({} if published is None else {MIX: published})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def in_use(units: int, at: str = "2026-01-03T00:00:00Z") -> str:
    """A mix of pods of so many units, published at a time; the guess for 0."""
    mix = PodMix({PodKind(mem=units): 7.5}) if units else None
    return encode_mix(mix, datetime.fromisoformat(at).timestamp())


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


LATE, LATER = "2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z"
"""After the mix was published."""


@pytest.mark.parametrize(
    ("published", "extenders", "expected"),
    [
        (in_use(4), [{}], ["4"]),
        (in_use(0), [{}], []),
        (None, [{}], ["8"]),
        ("no mix", [{}], ["8"]),
        (in_use(4), [{"created": LATE}], ["8"]),
        (in_use(4), [{"started": LATE}], ["8"]),
        (in_use(4, LATER), [{"started": LATE}], ["4"]),
        (in_use(4), [{"started": LATE}, {"created": "2026-01-02T00:00:00Z"}], ["4"]),
    ],
    ids=[
        "published",
        "guess",
        "by an old extender",
        "unreadable",
        "before the extender's pod was created",
        "before its container started",
        "after its container started",
        "by another replica",
    ],
)
def test_the_mix_that_the_extender_uses_is_the_one_that_it_published(
    published: str | None,
    extenders: list[dict[str, str]],
    expected: list[str],
    cluster: FakeCluster,
    run: Run,
) -> None:
    """One that a process published which no longer runs is not in use: the history counts then."""
    cluster.node("n", gpus=[Gpu(16)])
    for each in extenders:
        extender(cluster, at=OURS, **each)
    cluster.add(kept("gpushare", history(8), published))
    outcome = run("mix", "--no-headers", on=cluster)
    assert [line.split()[2] for line in outcome.out.splitlines()] == expected
    assert ("the mix of pods that the extender uses could not be read" in outcome.err) == (
        expected == ["8"]
    )


def test_a_tenant_publishes_no_mix(cluster: FakeCluster, run: Run) -> None:
    """Neither a ConfigMap nor a pod of its namespace counts, whatever they are called."""
    cluster.node("n", gpus=[Gpu(16)])
    extender(cluster, at=OURS, started=LATE)
    cluster.add(kept("team", history(2), in_use(2, LATER)))
    cluster.add(kept("gpushare", history(8), in_use(4)))
    old = "2026-01-02T00:00:00Z"
    extender(cluster, at=OURS, namespace="team", created=old, started=old)
    lines = run("mix", "--no-headers", on=cluster).out.splitlines()
    assert [line.split()[2] for line in lines] == ["8"]


def test_a_mix_that_is_not_learned_yet_is_the_guess(cluster: FakeCluster, run: Run) -> None:
    """Although the cluster has enough pods: a sentence states whose mix it is."""
    extender(busy(cluster), at=OURS)
    cluster.add(kept("gpushare", "", in_use(0)))
    outcome = run("mix", on=cluster)
    assert outcome.out == ""
    assert outcome.err == (
        "the extender has not learned from the pods yet: the policy uses a fixed guess\n"
    )


def pod_of_four(folder: Path, policy: str = "") -> str:
    """Path of a manifest with a pod of four units."""
    path, limits = folder / "pod.json", {"aliyun.com/gpu-mem": 4}
    box = {"name": "c", "resources": {"limits": limits}}
    metadata = {"name": "new", "annotations": {"gpushare/policy": policy} if policy else {}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [box]}}
    path.write_text(json.dumps(pod))
    return str(path)


def test_whatif_places_by_the_pods_that_the_extender_remembers(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    """Pods of 8 units come often: four units go where two such pods still find room.

    A mix that the extender published counts before what it remembers.
    """
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    cluster.pod("half", 8, node="n", index=0).pod("quarter", 4, node="n", index=1)
    extender(cluster, at=OURS)
    manifest = pod_of_four(tmp_path)

    def gpus() -> list[str]:
        out = run("whatif", "-f", manifest, "-o", "json", on=cluster).out
        return [index for item in json.loads(out)["items"] for index in item["gpus"]]

    cluster.add(kept("gpushare", history(8)))
    assert gpus() == ["1"]
    cluster.items[-1] = kept("gpushare", history(4))
    assert gpus() == ["0"]
    cluster.items[-1] = kept("gpushare", history(4), in_use(8))
    assert gpus() == ["1"]
    cluster.items[-1] = kept("gpushare", history(8), in_use(4))
    assert gpus() == ["0"]


def test_the_dashboard_places_pods_by_the_published_mix(cluster: FakeCluster) -> None:
    """The nodes of its what-if page compare placements by it, and its figure of fragments."""
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    extender(cluster, at=OURS)
    cluster.add(kept("gpushare", history(8), in_use(4)))
    frame = Frame(decode(cluster.json().encode()), DEFAULT_NAMES, taken=datetime.now(UTC))
    host = frame.candidates.node_infos[NodeName("n")].host
    assert host is not None
    assert host.mix.kinds == {PodKind(mem=4): 7.5}


@pytest.mark.parametrize("policy", ["", "binpack"])
@pytest.mark.parametrize("published", [None, in_use(4)])
def test_whatif_states_that_the_mix_is_not_the_extenders(
    policy: str, published: str | None, cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    """Where a pod may be placed by it; in the document and beside the table."""
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    extender(cluster, at=OURS)
    cluster.add(kept("gpushare", history(8), published))
    manifest = pod_of_four(tmp_path)
    flags = ["whatif", "-f", manifest, *(["--policy", policy] if policy else [])]
    notes = json.loads(run(*flags, "-o", "json", on=cluster).out)["notes"]
    if policy or published:
        assert notes == []
        return
    [sentence] = notes
    assert sentence.startswith("the mix of pods that the extender uses could not be read")
    assert f"note: {sentence}" in run(*flags, on=cluster).err


def test_a_pods_own_policy_is_enough_for_that_sentence(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    """The policy of a pod counts before that of the cluster. Without an extender there is none."""
    cluster.node("n", gpus=[Gpu(16), Gpu(16)])
    manifest = pod_of_four(tmp_path, "fragmentation")
    flags = ("whatif", "-f", manifest, "--policy", "binpack", "-o", "json")
    assert json.loads(run(*flags, on=cluster).out)["notes"] == []
    extender(cluster, at="")
    assert len(json.loads(run(*flags, on=cluster).out)["notes"]) == 1
