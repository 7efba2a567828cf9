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


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Iterator[MachineEnvironment]:
    """A machine whose programs are those of an earlier version; those of today lie beside them."""
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


@pytest.mark.timeout(2400)
def test_upgrades_of_containerd_and_kubelet_disturb_no_pod(
    environment: MachineEnvironment, case: Case
) -> None:
    """Pods run on, their shares stay allocated, and new pods get exactly the rest."""
    kubelet, containerd = versions(environment)
    assert kubelet == f"v{offline.EARLIER_KUBELET}"
    assert containerd.startswith(f"containerd://{offline.EARLIER_CONTAINERD}")
    size = environment.nodes[NODE][0].units
    case.create_running(sharing(case, "one", size - 8), sharing(case, "two", size - 4))
    kept = lives(case, "one", "two")
    held = used(environment)
    upgrade(environment, "containerd", *CONTAINERD)
    until("containerd is of today", lambda: versions(environment)[1] != containerd)
    registered(environment)
    case.create_running(sharing(case, "three", 4))
    upgrade(environment, "kubelet", "kubelet")
    version = f"v{environment.plane.version}"
    until("kubelet is of today", lambda: versions(environment)[0] == version)
    registered(environment)
    until("kubelet accounts for all", lambda: sum(used(environment)) == sum(held) + 4)
    assert lives(case, "one", "two") == kept
    until("annotations agree with kubelet", lambda: agree(environment, case))
    fill(environment, case)
