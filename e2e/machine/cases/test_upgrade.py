"""Upgrades in place of kubelet and containerd, while pods with shares run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import offline
from environments.case import Case
from environments.waiting import until
from host.testing.obtaining import obtained
from machine.accounts import agree, fill, lives, registered, sharing, used
from machine.environment import MachineEnvironment
from machine.nodefiles import NODE
from machine.running import running

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]

CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
NEW = "opt/gpushare/upgrade"


@pytest.fixture(scope="module")
def environment(request: pytest.FixtureRequest) -> Iterator[MachineEnvironment]:
    """A machine with programs of an earlier version; those of today lie beside them."""
    kubelet: Path = obtained(offline.ensure_earlier_kubelet)
    containerd: Path = obtained(offline.ensure_earlier_containerd)
    today = offline.ensure_programs(offline.chosen_version())
    files = {f"usr/bin/{name}": containerd / name for name in CONTAINERD}
    files["usr/bin/kubelet"] = kubelet
    files |= {f"{NEW}/{name}": today / name for name in (*CONTAINERD, "kubelet")}
    yield from running(request, MachineEnvironment(files=files))


def versions(environment: MachineEnvironment) -> tuple[str, str]:
    """Of kubelet and of containerd, as kubelet reports them."""
    info = environment.objects.node(NODE)["status"]["nodeInfo"]
    return info["kubeletVersion"], info["containerRuntimeVersion"]


def upgrade(environment: MachineEnvironment, unit: str, *names: str) -> None:
    """Put the programs of today in place of the earlier ones and restart their unit."""
    moves = " && ".join(f"mv /{NEW}/{name} /usr/bin/{name}" for name in names)
    environment.machine.shell(f"{moves} && systemctl restart {unit}")


def two_pods(environment: MachineEnvironment, case: Case) -> list[tuple[str, int]]:
    """Two pods with four units left on each GPU; their containers."""
    size = environment.nodes[NODE][0].units
    case.create_running(sharing(case, "one", size - 4), sharing(case, "two", size - 4))
    return lives(case, "one", "two")


def undisturbed(environment: MachineEnvironment, case: Case, kept: list[tuple[str, int]]) -> None:
    """The two pods run on with their shares, and new pods get exactly the rest."""
    registered(environment)
    held = [gpu.units - 4 for gpu in environment.nodes[NODE]]
    until("kubelet accounts for both", lambda: used(environment) == held)
    assert lives(case, "one", "two") == kept
    until("annotations agree with kubelet", lambda: agree(environment, case))
    fill(environment, case)


@pytest.mark.timeout(2400)
def test_an_upgrade_of_containerd_disturbs_no_pod(
    environment: MachineEnvironment, case: Case
) -> None:
    """One minor version up, under containers that the earlier one started."""
    before = versions(environment)[1]
    assert before.startswith(f"containerd://{offline.EARLIER_CONTAINERD}")
    kept = two_pods(environment, case)
    upgrade(environment, "containerd", *CONTAINERD)
    until("containerd is of today", lambda: versions(environment)[1] != before)
    undisturbed(environment, case, kept)


@pytest.mark.timeout(2400)
def test_an_upgrade_of_kubelet_disturbs_no_pod(environment: MachineEnvironment, case: Case) -> None:
    """One minor version up, without a drain, over the state that the earlier one wrote."""
    assert versions(environment)[0] == f"v{offline.EARLIER_KUBELET}"
    kept = two_pods(environment, case)
    upgrade(environment, "kubelet", "kubelet")
    version = f"v{environment.plane.version}"
    until("kubelet is of today", lambda: versions(environment)[0] == version)
    undisturbed(environment, case, kept)
