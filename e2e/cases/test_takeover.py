"""The chart over the stack of 2019: its pods go on and are accounted for where they are."""

from collections.abc import Iterator

import pytest

from environments import original
from environments.case import Case
from environments.kind import GPU_MEM, KindEnvironment
from environments.table import inspect, rows
from environments.waiting import until
from environments.workloads import Object

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

UNITS = 10
CARD = 1


@pytest.fixture
def taken_back(environment: KindEnvironment, small: str) -> Iterator[None]:
    """The original on the small node in place of our stack, which is there again at the end."""
    try:
        environment.uninstall()
        until("our units are gone", lambda: units(environment, small) == 0, seconds=60)
        environment.forget()
        environment.kubectl.apply(*originals(environment, small))
        all_units = sum(card.units for card in environment.nodes[small])
        until("its units", lambda: units(environment, small) == all_units, seconds=60)
        yield
    finally:
        remove_the_original(environment)
        environment.install()
        environment.wait_ready()


def originals(environment: KindEnvironment, node: str) -> list[Object]:
    """Its objects for this cluster."""
    image = environment.values["devicePlugin"]["image"]
    return original.objects(
        image=f"{image['repository']}:{image['tag']}",
        node=node,
        cards=environment.nodes[node],
        card=CARD,
    )


def remove_the_original(environment: KindEnvironment) -> None:
    """As the guide says: its pods are not touched."""
    where = ("-n", original.NAMESPACE, "--ignore-not-found")
    environment.kubectl("delete", *original.names(), *where)


def units(environment: KindEnvironment, node: str) -> int:
    """What the node offers to pods."""
    status = environment.kubectl.json("get", "node", node)["status"]
    return int(status["allocatable"].get(GPU_MEM, "0"))


def lives(case: Case, name: str) -> list[tuple[str, int]]:
    """Container ids and restarts: what a disturbed pod cannot keep."""
    states = case.get(name)["status"]["containerStatuses"]
    return [(state["containerID"], state["restartCount"]) for state in states]


def confirmed(case: Case, *names: str) -> bool:
    """The plugin has compared what kubelet gave these pods with their annotations."""
    said = (case.annotations(name) for name in names)
    return all(each["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true" for each in said)


@pytest.mark.usefixtures("taken_back")
def test_pods_of_the_original_stay_where_they_are_and_count(
    environment: KindEnvironment, case: Case, small: str
) -> None:
    """Kubelet's ids for them lie on any card; the books have them on the one they use."""
    size = environment.nodes[small][0].units
    old = case.pod("old", UNITS)
    old["spec"]["nodeName"] = small
    said = original.annotations(card=CARD, units=UNITS, size=size)
    old["metadata"]["annotations"] = said
    case.run(old)
    before = lives(case, "old")
    assert case.env("old")["NVIDIA_VISIBLE_DEVICES"] == str(CARD)

    remove_the_original(environment)
    environment.install()
    environment.wait_ready()

    rest = size - UNITS
    case.run(case.pod("beside", rest, node=small))
    case.run(case.pod("elsewhere", rest, node=small))
    assert (case.card("beside"), case.card("elsewhere")) == (CARD, 0)
    until("both are confirmed", lambda: confirmed(case, "beside", "elsewhere"), seconds=30)
    books = rows(inspect(environment))[small].cards
    assert [card for card in books if card[1]] == [(rest, size), (size, size)]
    assert case.annotations("old").items() >= said.items()
    assert not [key for key in case.annotations("old") if key.startswith("scheduler.framework")]
    assert lives(case, "old") == before
