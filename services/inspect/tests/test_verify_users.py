"""Pods of ``gpushare verify`` beside those of others, where MPS serves one user at a time."""

from typing import Any

import msgspec
import pytest
from drawncluster import FakeCluster, Gpu

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster import snapshots
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.verify.targets import targets
from gpuinspect.verify.users import waits_for
from gpukube.testing.plugin_pods import plugin_pod

Object = dict[str, Any]

SHARE = {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}


def run_as(user: int | None) -> Object:
    """A security context."""
    return {"securityContext": {} if user is None else {"runAsUser": user}}


def cluster(*specs: Object, mode: str = "mps", plugin: Object | None = None) -> Snapshot:
    """A GPU of this mode that pods with these fields share; fields of the plugin's container."""
    drawn = FakeCluster().node("n1", gpus=[Gpu(16, mode=mode)])
    for number, spec in enumerate(specs):
        drawn.pod(f"theirs-{number}", 2, node="n1", index=0, spec=spec)
    own = plugin_pod("plugin", "n1")
    own["spec"]["containers"][0] |= plugin or {}
    items = [*drawn.items, own]
    return snapshots.decode(msgspec.json.encode({"items": items}))


def reason(found: Snapshot) -> str:
    """Why a pod of a check may wait there."""
    (target,) = targets(found, DEFAULT_NAMES)
    return waits_for(found, DEFAULT_NAMES, target)


@pytest.mark.parametrize(
    ("spec", "users"),
    [
        (run_as(1000), "as user 1000:"),
        (run_as(None), "as the user of an image:"),
        ({}, "as the user of an image:"),
        (run_as(65532) | {"hostUsers": False}, "as user 65532 of a user namespace:"),
        (run_as(65532) | {"containers": [SHARE | run_as(0)]}, "as user 0:"),
    ],
)
def test_pods_of_other_users_are_named_by_their_user(spec: Object, users: str) -> None:
    """The user of the container counts, then that of the pod, then that of the image."""
    assert users in reason(cluster(spec))


def test_all_users_are_named_once() -> None:
    """However many pods run as each of them."""
    found = reason(cluster(run_as(1000), run_as(1000), run_as(0), run_as(65532)))
    assert "as user 0, user 1000:" in found
    assert "run as user 65532" in found
    assert "theirs" not in found


def test_few_of_many_users_are_named() -> None:
    """Tenants choose how many there are."""
    found = reason(cluster(*map(run_as, range(1000, 1006))))
    assert "as user 1000, user 1001, user 1002, 3 more:" in found


def test_pods_of_the_same_user_are_served_at_once() -> None:
    """Also a GPU that nobody uses, and one without MPS, makes no pod wait."""
    assert reason(cluster(run_as(65532))) == ""
    assert reason(cluster()) == ""
    assert reason(cluster(run_as(1000), mode="driver")) == ""


@pytest.mark.parametrize(
    ("plugin", "waits"),
    [
        ({"args": ["--mps-root=/run", "--mps-multi-user"]}, False),
        ({"env": [{"name": "MPS_MULTI_USER", "value": "true"}]}, False),
        ({"env": [{"name": "mps_multi_user", "value": "1"}]}, False),
        ({"env": [{"name": "MPS_MULTI_USER", "value": "false"}]}, True),
        ({"env": [{"name": "MPS_MULTI_USER", "valueFrom": {}}]}, True),
        (
            {"args": ["--no-mps-multi-user"], "env": [{"name": "MPS_MULTI_USER", "value": "1"}]},
            True,
        ),
        ({"args": ["--mps-multi-user", "--no-mps-multi-user"]}, True),
    ],
)
def test_in_multi_user_mode_nobody_waits(plugin: Object, waits: bool) -> None:
    """The mode may be set by mps.multiUser, by extraArgs or by extraEnv; flags go first."""
    assert bool(reason(cluster(run_as(1000), plugin=plugin))) == waits


def test_a_tenants_pod_that_looks_like_a_plugin_sets_no_mode() -> None:
    """Its flags are not those of the node's daemons."""
    forged = plugin_pod("forged", "n1", namespace="team", kubelet="")
    forged["spec"]["containers"][0]["args"] = ["--mps-multi-user"]
    drawn = FakeCluster().node("n1", gpus=[Gpu(16, mode="mps")])
    drawn.pod("theirs", 2, node="n1", index=0)
    items = [forged, *drawn.items, plugin_pod("plugin", "n1")]
    assert reason(snapshots.decode(msgspec.json.encode({"items": items})))
