"""The dashboard's list of pending pods explains a limited number of different pods, each once."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from claimobjects import (
    device,
    device_class,
    exclusive_class,
    request,
    resource_slice,
    template,
    uses,
)
from drawncluster import FakeCluster, Gpu

from gpucore.explain.pod_states import PodState
from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.queries import claims
from gpuinspect.queries.scheduling_status import UNSEEN
from gpuinspect.web import frames, limits
from gpuinspect.web.frames import Frame
from gpuinspect.web.pages import podpages

CONDITION = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}


def frame_of(cluster: FakeCluster) -> Frame:
    """The cluster at some time."""
    snapshot = decode(cluster.json().encode())
    return Frame(snapshot, DEFAULT_NAMES, taken=datetime(2026, 7, 1, tzinfo=UTC))


def reasons(frame: Frame) -> list[Any]:
    """The column with the reasons of the page, by pod."""
    shown: Any = podpages.waiting(frame).values["waiting"]
    return [row[2] for row in shown.rows]


@pytest.fixture(autouse=True)
def two_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two nodes two different pods are explained."""
    monkeypatch.setattr(limits, "LOOKS", 4)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Number of explanations of pods with shares and with claims; each takes a while."""
    found = {"shares": 0, "claims": 0}

    def counting(name: str, real: Any) -> Any:
        def explain(*arguments: Any) -> Any:
            found[name] += 1
            time.sleep(0.05)
            return real(*arguments)

        return explain

    monkeypatch.setattr(frames, "explain", counting("shares", frames.explain))
    monkeypatch.setattr(claims, "explain_claims", counting("claims", claims.explain_claims))
    monkeypatch.setattr(frames, "explain_claims", counting("claims", frames.explain_claims))
    return found


@pytest.fixture
def shares() -> Frame:
    """Two nodes; two equal pods, and three with node selectors of their own."""
    cluster = FakeCluster().node("a", gpus=[Gpu(15)]).node("b", gpus=[Gpu(15)])
    for number, disk in enumerate(("ssd", "ssd", "nvme", "hdd", "tape")):
        status = {"conditions": [CONDITION]} if disk == "hdd" else {}
        spec = {"nodeSelector": {"disk": disk}}
        cluster.pod(f"p{number}", 4, phase="Pending", spec=spec, status=status)
    return frame_of(cluster)


@pytest.fixture
def with_claims() -> Frame:
    """Two nodes with devices; two pods of one template, and two of templates of their own."""
    cluster = FakeCluster().add(device_class())
    for name in ("a", "b"):
        cluster.node(name, resources={}, labels={"gpushare/api": "claims"})
        cluster.add(resource_slice(name, [device(0, 15)]))
    for number, gib in enumerate((20, 20, 30, 40)):
        if number != 1:
            cluster.add(template(f"t{gib}", request(f"{gib}Gi")))
        spec = uses(template_name=f"t{gib}")
        status = {"conditions": [CONDITION]}
        cluster.pod(f"p{number}", phase="Pending", spec=spec, status=status)
    return frame_of(cluster)


def test_other_pods_have_the_message_of_the_scheduler(shares: Frame) -> None:
    """Pods beyond the limit have the scheduler's message, or a reference to their own page."""
    assert reasons(shares) == [
        "2 nodes: nodeSelector disk=ssd",
        "2 nodes: nodeSelector disk=ssd",
        "2 nodes: nodeSelector disk=nvme",
        "the scheduler reported: 0/2 nodes are available",
        podpages.UNEXPLAINED,
    ]


def test_the_page_of_a_pod_has_no_limit(shares: Frame) -> None:
    """A pod that the list does not explain is explained on its own page."""
    reasons(shares)
    pod = shares.pod("default", "p4")
    assert pod is not None
    assert shares.explain(pod).state is PodState.WAITING


def test_each_kind_is_explained_once(shares: Frame, counted: dict[str, int]) -> None:
    """Viewers who open the list at the same time, and later, share the explanations."""
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(reasons, [shares] * 4)
    assert others == [first] * 3
    assert counted["shares"] == 2


def test_claims_of_one_kind_are_explained_once(with_claims: Frame, counted: dict[str, int]) -> None:
    """Pods with equal claims share an explanation; those beyond the limit have the message."""
    found = reasons(with_claims)
    assert reasons(with_claims) == found
    assert counted["claims"] == 2
    assert found[0] == found[1] != found[2]
    assert found[3] == "the scheduler reported: 0/2 nodes are available"


def test_a_pod_whose_claims_fit_has_what_its_scheduler_did() -> None:
    """Nothing would help it more: a tenant cannot break the list with a scheduler that is none."""
    cluster = FakeCluster().add(device_class())
    cluster.node("a", resources={}, labels={"gpushare/api": "claims"})
    cluster.add(resource_slice("a", [device(0, 15)])).add(template("t", request("7Gi")))
    spec = {"schedulerName": "none", **uses(template_name="t")}
    frame = frame_of(cluster.pod("p", phase="Pending", spec=spec))
    assert reasons(frame) == [UNSEEN.format("none")]


def test_the_page_of_a_pod_agrees_with_the_list_where_its_exclusive_gpus_become_a_claim() -> None:
    """kube-scheduler makes a claim for ``aliyun.com/gpu``; both judge nodes that offer claims."""
    cluster = FakeCluster().add(exclusive_class()).node("n", resources={"pods": "9"})
    cluster.add(resource_slice("n", [device(0, 15)]))
    cluster.pod("p", phase="Pending", limits={"aliyun.com/gpu": "1"})
    frame = frame_of(cluster)
    ((pod, pod_request),) = frame.waiting
    assert frame.explain(pod) == frame.reason(pod, pod_request)
    assert frame.explain(pod).fits == ("n",)


CONFIGURATION = """
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: gpushare-scheduler}]
extenders: [{filterVerb: filter, managedResources: [{name: aliyun.com/gpu-mem}]}]
"""


@pytest.mark.parametrize("units", [4, 40])
def test_a_pod_of_another_scheduler_has_that_as_its_reason(units: int) -> None:
    """As in ``gpushare pending``, whether GPUs are free or not: such a pod waits in any case."""
    metadata = {"name": "s", "namespace": "kube-system"}
    cluster = FakeCluster().node("a", gpus=[Gpu(15)])
    data = {"config.yaml": CONFIGURATION}
    cluster.add({"kind": "ConfigMap", "metadata": metadata, "data": data})
    spec = {"schedulerName": "default-scheduler"}
    cluster.pod("p", units, phase="Pending", spec=spec, status={"conditions": [CONDITION]})
    (reason,) = reasons(frame_of(cluster))
    assert reason == (
        "no scheduler that calls the extender has the name default-scheduler: "
        "set spec.schedulerName to gpushare-scheduler"
    )
