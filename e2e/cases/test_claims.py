"""GPU shares as ResourceClaims, with the real kube-scheduler, kubelet and containerd.

Cases in which a node, the plugin or a GPU goes are in ``test_claims_nodes.py``, on demand.
One installation serves all cases: the nodes are switched to claims at its start and back at its
end, which are cases of their own.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from environments import claimoffer, claims, nicdriver
from environments.case import Case
from environments.claimoffer import consumed, prepared, share
from environments.kind import KindEnvironment
from environments.reader import terminal
from environments.waiting import PATIENCE_SECONDS, until
from guides.blocks import GuideTarget, found
from guides.session import GuideSession

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.since("1.36"),
    pytest.mark.usefixtures("nothing_allocated"),
]

BURST = 40
GIBIBYTES = 1 << 30
NUMA = "resource.kubernetes.io/numaNode"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def second(environment: KindEnvironment, case: Case) -> Iterator[Case]:
    """Another namespace."""
    other = Case(environment, f"{case.name}-b")
    other.open()
    try:
        yield other
    finally:
        other.close()


def test_two_namespaces_share_a_gpu_and_a_third_claim_starts_when_one_ends(
    offering: KindEnvironment, case: Case, second: Case, small: str
) -> None:
    """Unequal shares fill one GPU; what fits nowhere waits and starts without another action."""
    gpus = offering.nodes[small]
    size = gpus[0].units
    case.kubectl.apply(*share(case, "large", size - 6, small))
    case.wait_running("large")
    second.create_running(
        *share(second, "rest", 6, small)[:1], *share(second, "rest", 6, small)[1:]
    )
    (device,) = consumed(case)
    assert consumed(case) == {device: size - 6}
    assert consumed(second) == {device: 6}
    uuids = {
        case.env("large")["NVIDIA_VISIBLE_DEVICES"],
        second.env("rest")["NVIDIA_VISIBLE_DEVICES"],
    }
    assert uuids == {gpu.uuid for gpu in gpus if gpu.uuid.lower() == device}
    case.kubectl.apply(*share(case, "other", size, small))
    case.wait_running("other")
    second.kubectl.apply(*share(second, "waits", 5, small))
    until("the third claim is refused", lambda: second.events("FailedScheduling", "waits"))
    assert not second.node("waits")
    case.delete("large")
    second.wait_running("waits")
    assert consumed(second)[device] == 11


def test_a_pod_cannot_replace_what_its_claim_gives_it(
    offering: KindEnvironment, case: Case, small: str
) -> None:
    """The container runtime applies the CDI file over ``env``, and over ``envFrom`` too.

    The latter is no part of what admission can read, so it may name another GPU.
    """
    forged = {"GPUSHARE_MEM_LIMIT_MIB": "999999", "GPUSHARE_MEM_FRACTION": "1"}
    wanted, pod = share(case, "greedy", 3, small, env=forged)
    pod["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "all"}}]
    every = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "all", "namespace": case.name},
        "data": {"NVIDIA_VISIBLE_DEVICES": "all"},
    }
    case.kubectl.apply(every, wanted, pod)
    case.wait_running("greedy")
    env = case.env("greedy")
    assert env["GPUSHARE_MEM_LIMIT_MIB"] == str(3 * 1024)
    assert env["NVIDIA_VISIBLE_DEVICES"] in {gpu.uuid for gpu in offering.nodes[small]}
    assert float(env["GPUSHARE_MEM_FRACTION"]) < 1


def test_an_extended_resource_gets_exclusive_gpus_by_a_claim(
    offering: KindEnvironment, case: Case, small: str
) -> None:
    """A manifest with aliyun.com/gpu: 2 runs without webhook, extender or second scheduler."""
    pod = claims.pod(
        "pair", case.name, image=offering.image, node=small, limits={"aliyun.com/gpu": "2"}
    )
    case.create_running(pod)
    seen = case.env("pair")["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert sorted(seen) == sorted(gpu.uuid for gpu in offering.nodes[small])
    size = offering.nodes[small][0].units
    assert sorted(consumed(case).values()) == [size, size]


def test_one_share_has_memory_of_two_gpus(
    offering: KindEnvironment, case: Case, small: str
) -> None:
    """The container sees both; each GPU gives its own part."""
    apart = {"distinctAttribute": f"{claims.DRIVER}/uuid"}
    case.kubectl.apply(*share(case, "wide", 4, small, count=2, constraints=[apart]))
    case.wait_running("wide")
    seen = case.env("wide")["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert sorted(seen) == sorted(gpu.uuid for gpu in offering.nodes[small])
    assert sorted(consumed(case).values()) == [4, 4]


def test_exclusive_gpus_of_one_claim_are_connected(
    offering: KindEnvironment, case: Case, small: str, linked: str
) -> None:
    """A node whose GPUs no NVLink connects has no link group, so the claim waits there."""
    together = {"matchAttribute": f"{claims.DRIVER}/linkGroup"}
    pair: Any = {"count": 2, "constraints": [together], "of": "gpushare-exclusive"}
    case.kubectl.apply(*share(case, "apart", 0, small, **pair))
    case.kubectl.apply(*share(case, "linked", 0, linked, **pair))
    case.wait_running("linked")
    seen = case.env("linked")["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert len(set(seen) & {gpu.uuid for gpu in offering.nodes[linked]}) == 2
    until("the other claim is refused", lambda: case.events("FailedScheduling", "apart"))
    assert not case.node("apart")


def test_an_unhealthy_gpu_is_tainted_and_takes_no_new_claim(
    offering: KindEnvironment, case: Case, small: str
) -> None:
    """The pod on it keeps running; a new one goes to the other GPU."""
    case.kubectl.apply(*share(case, "before", 2, small))
    case.wait_running("before")
    (struck,) = consumed(case)
    index = next(g.index for g in offering.nodes[small] if g.uuid.lower() == struck)
    try:
        offering.break_gpus(small, f"gpu {index} lost")
        until(
            "the device is tainted",
            lambda: any("taints" in each for each in claims.devices(case.kubectl, small)),
        )
        case.kubectl.apply(*share(case, "after", 2, small))
        case.wait_running("after")
        assert len(consumed(case)) == 2
        assert case.ready("before")
    finally:
        offering.break_gpus(small, f"gpu {index} lost", f"gpu {index} recovered")
        until(
            "no device is tainted",
            lambda: not any("taints" in each for each in claims.devices(case.kubectl, small)),
        )


def test_claims_of_one_gpu_share_its_mps_daemon(
    offering: KindEnvironment, case: Case, second: Case, small: str
) -> None:
    """The label of an empty node changes the mode; each container has its own limit."""
    offering.kubectl("label", "node", small, "gpushare/isolation=mps", "--overwrite")
    try:
        until("the devices have mode mps", lambda: modes(case, small) == {"mps"})
        for each, gib in ((case, 3), (second, 5)):
            each.kubectl.apply(*share(each, "client", gib, small))
        case.wait_running("client")
        second.wait_running("client")
        (first, other) = (each.env("client") for each in (case, second))
        assert first["CUDA_MPS_PIPE_DIRECTORY"] == other["CUDA_MPS_PIPE_DIRECTORY"]
        assert first["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={3 * 1024}M"
        assert other["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={5 * 1024}M"
        assert consumed(case).keys() == consumed(second).keys()
        for each in (case, second):
            each.delete("client")
    finally:
        offering.kubectl("label", "node", small, "gpushare/isolation-")
        until("the devices have mode none", lambda: modes(case, small) == {"none"})


def modes(case: Case, node: str) -> set[str]:
    """Isolation modes of the healthy devices of a node; one that is not healthy counts as empty."""
    return {
        "" if "taints" in each else each["attributes"]["isolation"]["string"]
        for each in claims.devices(case.kubectl, node)
    }


def test_a_burst_survives_restarts_of_kubelet_and_of_the_plugin(
    offering: KindEnvironment, case: Case, large: str
) -> None:
    """All pods run in the end, no GPU is over its capacity, and every claim has its CDI file."""
    source = {"resourceClaimTemplateName": "two"}
    names = [f"burst-{number}" for number in range(BURST)]
    pods = [
        claims.pod(name, case.name, image=offering.image, node=large, source=source)
        for name in names
    ]
    case.kubectl.apply(claims.template("two", case.name, 2), *pods)
    run_at_least(case, 5)
    plugin = (
        *("delete", "pod", "-n", offering.namespace, "--wait=false"),
        *("-l", "app.kubernetes.io/component=device-plugin"),
        f"--field-selector=spec.nodeName={large}",
    )
    case.kubectl(*plugin)
    # At its start kubelet spends seconds on every container that is created and does not run yet.
    run_at_least(case, BURST * 3 // 4)
    offering.restart_kubelet(large)
    case.wait_running(*names)
    held = consumed(case)
    assert sum(held.values()) == 2 * BURST
    sizes = {gpu.uuid.lower(): gpu.units for gpu in offering.nodes[large]}
    assert all(held[device] <= sizes[device] for device in held)
    seen = Counter(case.env(name)["NVIDIA_VISIBLE_DEVICES"].lower() for name in names[:3])
    assert set(seen) <= set(held)
    assert prepared(offering)[large] == BURST
    case.kubectl("delete", "pods", "--all", "-n", case.name, "--wait=false")
    until("no claim is left on the node", lambda: prepared(offering)[large] == 0)


def run_at_least(case: Case, count: int) -> None:
    """Wait until so many pods of the case run."""
    until(
        f"{count} pods run",
        lambda: sum(pod["status"]["phase"] == "Running" for pod in case.pods()) >= count,
    )


def test_a_share_and_a_device_of_another_driver_are_one_claim(
    offering: KindEnvironment, case: Case, small: str
) -> None:
    """Both drivers prepare the claim; the only NIC beside a GPU is on the NUMA node of GPU 1."""
    numa = {
        each["attributes"]["index"]["int"]: each["attributes"][NUMA]["int"]
        for each in claims.devices(offering.kubectl, small)
    }
    assert len(set(numa.values())) == 2
    image = offering.values["devicePlugin"]["image"]
    made = nicdriver.objects(
        image=f"{image['repository']}:{image['tag']}",
        namespace=case.name,
        node=small,
        attribute=NUMA,
        numbers=(max(numa.values()) + 1, numa[1]),
    )
    try:
        case.kubectl.apply(*made)
        case.wait_running(nicdriver.NAME)
        nic = {"name": "nic", "exactly": {"deviceClassName": nicdriver.NAME, "count": 1}}
        aligned = {"matchAttribute": NUMA}
        case.kubectl.apply(*share(case, "both", 4, small, beside=[nic], constraints=[aligned]))
        case.wait_running("both")
        results = claims.allocated(case.kubectl, case.name)
        device = {each["driver"]: each["device"] for each in results}
        assert set(device) == {claims.DRIVER, nicdriver.DRIVER}
        assert device[nicdriver.DRIVER] == "nic-1"
        env = case.env("both")
        assert env["NVIDIA_VISIBLE_DEVICES"] == offering.nodes[small][1].uuid
        case.delete("both")
        until("the claim is unprepared", lambda: prepared(offering)[small] == 0)
    finally:
        names = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in made[:2]]
        case.kubectl("delete", *names)
        case.delete(nicdriver.NAME)
        left = offering.on_node(small, "ls /var/lib/kubelet/plugins_registry")
        assert nicdriver.DRIVER not in left


def test_the_guide_for_operators_moves_a_node_to_claims_and_back(
    offering: KindEnvironment, case: Case, small: str, tmp_path: Path
) -> None:
    """Its commands do what the page shows."""
    [guide] = found(DOCS, GuideTarget.CLAIMS)
    label = ("label", "node", small)
    offering.kubectl(*label, f"{claims.LABEL}-")
    until("the node offers devices", lambda: not claims.devices(offering.kubectl, small))
    try:
        GuideSession(
            tmp_path,
            environment=terminal(offering, case, tmp_path),
            stands_for={
                "busybox:1.36": offering.image,
                "my-team": case.name,
                "gpu-node": small,
            },
            patience_s=PATIENCE_SECONDS,
        ).follow(guide)
    finally:
        offering.kubectl(*label, f"{claims.LABEL}=claims", "--overwrite")
        claimoffer.wait_offered(offering)
