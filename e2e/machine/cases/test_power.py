"""A real reboot and a power cut: kubelet's accounts outlive both, and agree with ours."""

import pytest

from environments.case import Case
from environments.waiting import until
from machine.accounts import fill, replicas, started
from machine.environment import MachineEnvironment
from machine.nodefiles import NODE

MISSING = "GpuShareMissing"

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]


def test_a_reboot_keeps_the_accounts(environment: MachineEnvironment, case: Case) -> None:
    """Pods start again with their shares, or others in their place, and none counts twice."""
    size = environment.nodes[NODE][0].units
    case.kubectl.apply(replicas(case, "served", size - 4, 2))
    until("they run", lambda: started(environment, case, "served", 2))
    environment.machine.reboot()
    until("they run again", lambda: started(environment, case, "served", 2), seconds=600)
    environment.wait_ready()
    fill(environment, case)


def delete_without_share(case: Case) -> None:
    """Delete the pods that the plugin has reported."""
    for event in case.objects.events(case.name):
        if event["reason"] == MISSING:
            pod = event["involvedObject"]["name"]
            case.kubectl(
                "delete", "pod", pod, "-n", case.name, "--ignore-not-found", "--wait=false"
            )


def test_a_power_cut_while_pods_bind_allocates_nothing_twice(
    environment: MachineEnvironment, case: Case
) -> None:
    """QEMU is killed when the first pods have their node; the machine boots, and all pods run.

    Where kubelet lost its checkpoint in the cut, it starts them without devices; the plugin reports
    these, and others run in their place.
    """
    case.kubectl.apply(replicas(case, "served", 12, 12))
    until("some are bound", lambda: len(case.gpus()) >= 3)
    environment.machine.power_cut()
    environment.machine.power_on()

    def run() -> bool:
        delete_without_share(case)
        return started(environment, case, "served", 12)

    until("all run", run, seconds=600)
    environment.wait_ready()
    fill(environment, case)
