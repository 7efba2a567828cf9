"""GPU shares as ResourceClaims in the tables: the same columns as those of the device plugin."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from claimobjects import allocated, claim, device, resource_slice
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import POD, Run
from measuredworkloads import history, written

RESOURCE_API = "/apis/resource.k8s.io/v1"
NOTHING: dict[str, str] = {}


@pytest.fixture
def both(cluster: FakeCluster) -> FakeCluster:
    """A node of the device plugin, and one that offers claims, each with a pod."""
    cluster.node("n1", address="10.0.0.1", gpus=[Gpu(15)]).pod("old", 3, node="n1", index=0)
    cluster.node("n2", address="10.0.0.2", resources=NOTHING)
    cluster.add(resource_slice("n2", [device(0, 15), device(1, 15, taint="NoSchedule")]))
    cluster.pod("new", node="n2", namespace="team")
    return cluster.add(
        claim("new-gpu", allocated("n2", 0, "7Gi", "10"), namespace="team", pods=["new"])
    )


def test_claims_are_in_the_same_columns(run: Run, both: FakeCluster) -> None:
    """A node that offers claims is a line like any other."""
    found = run("inspect", on=both)
    lines = [line.split() for line in found.out.splitlines()]
    assert lines[1] == ["n1", "10.0.0.1", "3/15", "0/0", "3/15"]
    assert lines[2] == ["n2", "10.0.0.2", "7/15", "0/15", "7/30"]
    assert "10/45 (22%)" in found.out
    assert "note: n2 GPU1 is unhealthy: it accepts no new pods" in found.err


def test_details_name_the_pod_of_a_claim(run: Run, both: FakeCluster) -> None:
    """And the document names the claim."""
    rows = [line.split() for line in run("inspect", "-d", "n2", on=both).out.splitlines()]
    assert ["new", "team", "7", "0"] in rows
    pod = json.loads(run("inspect", "n2", "-o", "json", on=both).out)["items"][0]["pods"][0]
    assert (pod["name"], pod["uid"], pod["claim"]) == ("new", "uid-team-new", "new-gpu")
    assert (pod["gpus"], pod["corePercent"]) == ({"0": 7}, {"0": 10})


def test_a_claim_without_a_pod_has_its_own_name(run: Run, both: FakeCluster) -> None:
    """The memory of an allocated claim is not free, although no pod uses it."""
    both.add(claim("kept", allocated("n2", 0, "2Gi"), namespace="team"))
    rows = [line.split() for line in run("inspect", "-d", "n2", on=both).out.splitlines()]
    assert ["kept", "team", "2", "0"] in rows


def test_usage_counts_claims(run: Run, both: FakeCluster) -> None:
    """For the namespace and the labels of their pods."""
    both.add(claim("kept", allocated("n2", 0, "2Gi"), namespace="team"))
    groups = json.loads(run("usage", "-A", "-o", "json", on=both).out)["items"]
    assert {each["name"]: (each["pods"], each["allocated"]) for each in groups} == {
        "default": (1, 3),
        "team": (1, 9),
    }


def test_an_over_full_gpu_is_reported(run: Run, both: FakeCluster) -> None:
    """Kubernetes allocates no more than there is; if it did, it would be seen."""
    both.add(claim("more", allocated("n2", 0, "9Gi")))
    assert "note: n2 GPU0 is over-full: 16 of 15 GiB" in run("inspect", on=both).err


def test_top_node_counts_a_claim_once_as_its_pods(run: Run, both: FakeCluster) -> None:
    """A pod whose extended resource became a claim has one row, and its node shares GPUs."""
    both.pod("ext", 5, node="n2", namespace="team")
    both.add(claim("ext-resources-x", allocated("n2", 1, "5Gi"), namespace="team", pods=["ext"]))
    (node,) = json.loads(run("top", "node", "n2", "-o", "json", on=both).out)["items"]
    assert [(pod["name"], pod["gpus"]) for pod in node["pods"]] == [("ext", 0.333), ("new", 0.467)]
    assert (node["allocated"], node["shareable"]) == (0.8, True)
    assert run("top", "node", "-m", "share", "-o", "name", on=both).out == "node/n1\nnode/n2\n"
    assert run("top", "node", "-m", "none", "-o", "name", on=both).out == ""


def test_top_node_names_a_claim_that_no_pod_uses(run: Run, both: FakeCluster) -> None:
    """Its memory is allocated all the same."""
    both.add(claim("kept", allocated("n2", 0, "3Gi"), namespace="team"))
    (node,) = json.loads(run("top", "node", "n2", "-o", "json", on=both).out)["items"]
    assert [pod["name"] for pod in node["pods"]] == ["kept", "new"]


@pytest.fixture
def server(both: FakeCluster) -> Iterator[FakeApiServer]:
    """The same cluster as an API server."""

    def all_of(kind: str) -> list[dict[str, object]]:
        return [item for item in both.items if item["kind"] == kind]

    lists = {
        "/api/v1/nodes": all_of("Node"),
        "/api/v1/pods": all_of("Pod"),
        "/api/v1/namespaces/kube-system/configmaps": [],
        f"{RESOURCE_API}/resourceslices": all_of("ResourceSlice"),
        f"{RESOURCE_API}/resourceclaims": all_of("ResourceClaim"),
    }
    with FakeApiServer(lists).serving() as serving:
        yield serving


def test_a_snapshot_has_the_claims(
    run: Run, server: FakeApiServer, both: FakeCluster, tmp_path: Path
) -> None:
    """What the file shows is what the cluster showed."""
    flag, file = f"--kubeconfig={server.kubeconfig(tmp_path)}", tmp_path / "file"
    assert run("snapshot", str(file), flag).code == 0
    live = run("inspect", "-d", flag)
    assert run("inspect", "-d", f"--snapshot={file}").out == live.out
    assert "new" in live.out
    assert any("fieldSelector=spec.driver%3D" in each for each in server.requests)


def test_without_the_api_nothing_is_reported(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """Older clusters have no resource.k8s.io/v1."""
    for name in ("resourceslices", "resourceclaims"):
        server.statuses[f"{RESOURCE_API}/{name}"] = 404
    found = run("inspect", f"--kubeconfig={server.kubeconfig(tmp_path)}")
    assert (found.code, found.err) == (0, "")
    assert "3/15 (20%)" in found.out


@pytest.mark.parametrize(
    "command",
    [
        "inspect",
        "inspect -o json",
        "top node",
        "top node -o json",
        "top gpu",
        "top gpu -o json",
        "defrag --units=1",
        "whatif -f {}",
        "usage -A",
        "usage -A -o json",
        "usage --by node",
        "watch --count=1",
        "recommend -A --whatif --history {}.jsonl",
    ],
)
def test_without_the_right_the_gap_is_named_once(
    run: Run, server: FakeApiServer, tmp_path: Path, manifest: Path, command: str
) -> None:
    """Sums would be wrong in silence, and GPUs seem free that claims hold."""
    manifest.write_text(POD)
    written(manifest.with_name(f"{manifest.name}.jsonl"), [history("web", 3)])
    server.statuses[f"{RESOURCE_API}/resourceclaims"] = 403
    words = command.format(manifest).split()
    found = run(*words, f"--kubeconfig={server.kubeconfig(tmp_path)}")
    output = " ".join((found.out + found.err).split())
    assert output.count("ResourceClaims cannot be read, so what claims hold is missing") == 1
