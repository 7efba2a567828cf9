"""Pods with claims, to a team that has the role of the chart in its namespace, or everywhere."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from charting import render
from chartrights import Authorizer, rights_by
from claimobjects import (
    API,
    allocated,
    claim,
    device,
    device_class,
    request,
    resource_slice,
    template,
)
from drawncluster import FakeCluster, Gpu
from invoking import Run, WhatIfOutcome
from restricting import restrict
from test_readme_rights import AnyList

pytestmark = pytest.mark.slow

UNDECIDED = "not enough could be read to decide whether it fits a node"
MESSAGE = "0/1 nodes are available: 1 cannot allocate all claims."
Asked = Callable[[str, str], WhatIfOutcome]


def using(**reference: str) -> dict[str, Any]:
    """A pod specification with one claim."""
    return {"resourceClaims": [{"name": "gpu", **reference}]}


@pytest.fixture
def asked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """Runs a command as a user with the role in a namespace; empty: everywhere."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(16)], resources={})
    waits = {"conditions": [{"type": "PodScheduled", "status": "False", "message": MESSAGE}]}
    cluster.pod("runs", node="n1", spec=using(resourceClaimName="held"))
    cluster.pod("named", phase="Pending", spec=using(resourceClaimName="big"), status=waits)
    cluster.pod("made", phase="Pending", spec=using(resourceClaimTemplateName="t"), status=waits)
    node, *pods = cluster.items
    held = claim("held", allocated("n1", 0, "4Gi"), pods=["runs"])
    claims = [held, claim("big", spec=request("40Gi"))]
    server = AnyList()
    server.lists = {
        "/api/v1/nodes": [node],
        "/api/v1/pods": pods,
        f"/apis/{API}/resourceslices": [resource_slice("n1", [device(0, 16)])],
        f"/apis/{API}/deviceclasses": [device_class()],
        f"/apis/{API}/resourceclaims": claims,
        f"/apis/{API}/namespaces/default/resourceclaims": claims,
        f"/apis/{API}/namespaces/default/resourceclaimtemplates": [template("t", request("30Gi"))],
        "/api/v1/namespaces/default/pods": pods,
    }
    role = render("1.36.0").one("ClusterRole", "-viewer")
    with server.serving():

        def ask(words: str, namespace: str) -> WhatIfOutcome:
            restrict(server, Authorizer([*rights_by(role, namespace)]), monkeypatch)
            return run(*words.split(), "--kubeconfig", str(server.kubeconfig(tmp_path)))

        yield ask


@pytest.mark.parametrize(("name", "amount"), [("named", 40), ("made", 30)])
def test_a_pod_that_waits_is_no_refusal_of_nodes_that_were_not_read(
    asked: Asked, name: str, amount: int
) -> None:
    """Who may not read nodes learns what the pod requests, and no reason by nodes."""
    found = asked(f"explain pod {name} -n default", "default")
    assert f"Requests:   {amount} GiB of one GPU" in found.out
    assert UNDECIDED in found.out
    assert "no node offers" not in found.out
    assert "ResourceSlices cannot be read" in " ".join(found.err.split())


def test_pending_has_the_words_of_the_scheduler(asked: Asked) -> None:
    """For both pods that wait, and none that runs."""
    lines = asked("pending -n default", "default").out.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["made", "named"]
    assert all(line.endswith(MESSAGE) for line in lines)


def test_a_pod_that_runs_is_placed(asked: Asked) -> None:
    """Its node is in its own object; which GPU it has is in the slices."""
    found = asked("explain pod runs -n default", "default").out
    assert "State:      placed" in found
    assert "Where:      a GPU of node n1" in found


def test_with_the_role_everywhere_the_reasons_are_exact(asked: Asked) -> None:
    """As before: figures of each GPU."""
    assert "largest GPU 16 GiB, requested 40" in asked("explain pod named -n default", "").out
    assert "4 GiB on GPU 0 of node n1 (claim held)" in asked("explain pod runs -n default", "").out
