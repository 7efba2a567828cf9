"""An upgrade from the release before, and its rollback, while 200 shares run.

``make e2e MARK=ondemand CASES=e2e/cases/test_upgrade_many.py`` runs it; ``GPUSHARE_FROM=<commit>``
names another commit to upgrade from.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from environments import earlier, helm, workloads
from environments.case import Case
from environments.kind import NAMESPACE, RELEASE, KindEnvironment
from environments.owncluster import own_cluster
from environments.table import inspect
from environments.testing.releases import earlier_commit
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand, pytest.mark.timeout(3600)]

SHARES = 200
AT_ONCE = 20
MACHINES = ("h100-nvswitch-8x80", "h200-8x141")
"""100 shares on each: kubelet allows 110 pods."""


@pytest.fixture(scope="session")
def commit() -> str:
    """The commit to upgrade from, known before a cluster is made."""
    return earlier_commit()


@pytest.fixture(scope="session")
def environment(commit: str, prepared: KindEnvironment) -> Iterator[KindEnvironment]:
    """A cluster of the case's own, with room for the shares."""
    del commit  # only known before
    with own_cluster(f"{prepared.name}-many", MACHINES) as world:
        yield world


@pytest.fixture
def before(environment: KindEnvironment, commit: str, tmp_path: Path) -> earlier.Earlier:
    """What is installed before the upgrade; it takes the place of the stack."""
    found = earlier.build(commit, tmp_path)
    environment.load(found.images)
    return found


def test_an_upgrade_and_its_rollback_disturb_none_of_200_shares(
    environment: KindEnvironment, case: Case, before: earlier.Earlier
) -> None:
    """No container restarts, no allocation changes, and the next pod finds what is free."""
    now = environment.values
    environment.uninstall()
    old = environment.values_of(before.images)
    helm.install(RELEASE, before.chart, NAMESPACE, old, environment.kubeconfig)
    environment.wait_ready()
    create(case, environment)
    started, table = lives(case), inspect(environment, "-d")

    environment.install(now)
    environment.wait_ready()
    until("every part is the new one", lambda: images(environment) <= names(now))
    undisturbed(case, environment, started, table)

    helm.rollback(RELEASE, NAMESPACE, environment.kubeconfig)
    environment.wait_ready()
    until("every part is the old one", lambda: images(environment) <= names(old))
    undisturbed(case, environment, started, table)


def create(case: Case, environment: KindEnvironment) -> None:
    """Shares of one to four units, half of them on each node, all confirmed."""
    pods = [
        workloads.pod(
            f"share-{number:03}",
            [number % 4 + 1],
            namespace=case.name,
            image=environment.image,
            node=tuple(environment.nodes)[number % 2],
            command=["sleep", "86400"],
        )
        for number in range(SHARES)
    ]
    for first in range(0, SHARES, AT_ONCE):
        case.create_running(*pods[first : first + AT_ONCE])
    until("all are confirmed", lambda: all(confirmed(pod) for pod in case.pods()))


def undisturbed(
    case: Case, environment: KindEnvironment, started: dict[str, Any], table: str
) -> None:
    """Everything of the shares is as before, and another pod comes and goes."""
    assert lives(case) == started
    until("the table is that of before", lambda: inspect(environment, "-d") == table)
    case.create_running(case.pod("next", 70, node=tuple(environment.nodes)[1]))
    case.delete("next")
    assert lives(case) == started


def lives(case: Case) -> dict[str, Any]:
    """What a disturbed pod cannot keep: its containers, their restarts and its annotations."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["annotations"],
            [
                (one["containerID"], one["restartCount"])
                for one in pod["status"]["containerStatuses"]
            ],
        )
        for pod in case.pods()
    }


def confirmed(pod: dict[str, Any]) -> bool:
    """Its grant is written down."""
    return bool(pod["metadata"]["annotations"].get("ALIYUN_COM_GPU_MEM_ASSIGNED") == "true")


def images(environment: KindEnvironment) -> set[str]:
    """Images of the extender and of the plugins."""
    chosen = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component in (scheduler,device-plugin)")
    return {
        container["image"]
        for pod in environment.kubectl.items("pods", *chosen)
        for container in pod["spec"]["containers"]
        if container["name"] in {"extender", "device-plugin"}
    }


def names(values: dict[str, Any]) -> set[str]:
    """Images of the extender and of the plugins in values of the chart."""
    parts = (values["extender"]["image"], values["devicePlugin"]["image"])
    return {f"{one['repository']}:{one['tag']}" for one in parts}
