"""The guide about migrating, run over the stack of 2019: its pods go on and are accounted for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from environments import original
from environments.case import Case
from environments.kind import GPU_MEM, KindEnvironment
from environments.reader import checkout
from environments.table import inspect, rows
from environments.waiting import PATIENCE_SECONDS, until
from environments.workloads import Object
from guides.blocks import GuideTarget, found
from guides.session import GuideSession

pytestmark = pytest.mark.e2e

DOCS = Path(__file__).parents[2] / "docs"
UNITS = 10
GPU = 1


@pytest.fixture
def taken_back(environment: KindEnvironment) -> Iterator[None]:
    """The original in place of our stack, which is there again at the end."""
    try:
        environment.uninstall()
        until("our units are gone", lambda: not offered(environment))
        environment.forget()
        environment.kubectl.apply(*originals(environment))
        until("its units", lambda: offered(environment) == every_unit(environment))
        yield
    finally:
        remove_the_original(environment)
        environment.install()
        environment.wait_ready()


def originals(environment: KindEnvironment) -> list[Object]:
    """Its objects for this cluster."""
    image = environment.values["devicePlugin"]["image"]
    name = f"{image['repository']}:{image['tag']}"
    return original.objects(image=name, nodes=environment.nodes, gpu=GPU)


def remove_the_original(environment: KindEnvironment) -> None:
    """Whatever of it is there; its pods are not touched."""
    where = ("-n", original.NAMESPACE, "--ignore-not-found")
    environment.kubectl("delete", *original.names(), *where)


def offered(environment: KindEnvironment) -> dict[str, int]:
    """Units that nodes offer to pods, of nodes that offer any."""
    nodes = environment.objects.nodes()
    units = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU_MEM, "0"))
        for node in nodes
    }
    return {node: amount for node, amount in units.items() if amount}


def every_unit(environment: KindEnvironment) -> dict[str, int]:
    """Units of each node's GPUs."""
    return {node: sum(gpu.units for gpu in gpus) for node, gpus in environment.nodes.items()}


def lives(case: Case, name: str) -> list[tuple[str, int]]:
    """Container ids and restarts: what a disturbed pod cannot keep."""
    states = case.get(name)["status"]["containerStatuses"]
    return [(state["containerID"], state["restartCount"]) for state in states]


def confirmed(case: Case, *names: str) -> bool:
    """The plugin has compared what kubelet gave these pods with their annotations."""
    written = (case.annotations(name) for name in names)
    return all(each.get("ALIYUN_COM_GPU_MEM_ASSIGNED") == "true" for each in written)


@pytest.mark.usefixtures("taken_back")
def test_the_guide_takes_a_cluster_over_and_pods_stay_and_count(
    environment: KindEnvironment, case: Case, small: str, tmp_path: Path
) -> None:
    """The pods survive the guide's commands and are counted on the GPU that they use.

    Kubelet's ids for them lie on any GPU.
    """
    size = environment.nodes[small][0].units
    old = case.pod("old", UNITS)
    old["spec"]["nodeName"] = small
    written = original.annotations(gpu=GPU, units=UNITS, size=size)
    old["metadata"]["annotations"] = written
    case.create_running(old)
    before = lives(case, "old")
    assert case.env("old")["NVIDIA_VISIBLE_DEVICES"] == str(GPU)

    (guide,) = found(DOCS, GuideTarget.ORIGINAL)
    variables = checkout(environment, case, tmp_path)
    GuideSession(tmp_path, environment=variables, patience_s=PATIENCE_SECONDS).follow(guide)

    environment.wait_ready()
    rest = size - UNITS
    case.create_running(case.pod("beside", rest, node=small))
    case.create_running(case.pod("elsewhere", rest, node=small))
    assert (case.gpu("beside"), case.gpu("elsewhere")) == (GPU, 0)
    until("both are confirmed", lambda: confirmed(case, "beside", "elsewhere"))
    shown = rows(inspect(environment))[small].gpus
    assert [gpu for gpu in shown if gpu[1]] == [(rest, size), (size, size)]
    assert case.annotations("old").items() >= written.items()
    assert not [key for key in case.annotations("old") if key.startswith("scheduler.framework")]
    assert lives(case, "old") == before
