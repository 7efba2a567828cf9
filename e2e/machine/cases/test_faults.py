"""Faults of a node that it outlives: a clock that jumps, a read-only root, swap, a full disk.

The cases share a machine, and each undoes its fault.
"""

from collections.abc import Iterator

import pytest

from environments.case import Case
from environments.waiting import until
from machine.accounts import (
    agree,
    end_plugin,
    fill,
    lives,
    plugin_lives,
    plugin_log,
    registered,
    replicas,
    restart_plugin,
    sharing,
    used,
)
from machine.environment import MachineEnvironment
from machine.faults import (
    clock_offset,
    configure_kubelet,
    full,
    pin_images,
    read_only_root,
    set_clock,
    small_directory,
    swap,
    tasks,
    writable,
)
from machine.nodefiles import NODE
from machine.running import running

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]

JUMP_SECONDS = 7200
SLACK_SECONDS = 600
"""The clocks of the machine and of the host may drift and the commands take time."""
READ_ONLY = "read-only file system"
CDI = "/run/cdi"
HISTORIES = "/var/lib/kubelet/plugins/gpushare-usage"
NOT_SAVED = "the usage history is not saved"


@pytest.fixture(scope="module")
def environment(request: pytest.FixtureRequest) -> Iterator[MachineEnvironment]:
    """One machine for all cases of this file."""
    yield from running(request, MachineEnvironment())


@pytest.mark.timeout(2400)
def test_a_clock_that_jumps_two_hours_disturbs_no_pod(
    environment: MachineEnvironment, case: Case
) -> None:
    """Running pods keep their containers, and pods that start meanwhile get their shares."""
    size = environment.nodes[NODE][0].units
    case.create_running(sharing(case, "before", size - 24))
    kept, plugin = lives(case, "before"), plugin_lives(environment)
    for ahead in (JUMP_SECONDS, 0):
        starting = [f"during-{ahead}-{number}" for number in range(3)]
        case.kubectl.apply(*(sharing(case, name, 4) for name in starting))
        until("they are bound", lambda: case.gpus().keys() >= set(starting))  # noqa: B023
        set_clock(environment.machine, ahead)
        assert abs(clock_offset(environment.machine) - ahead) < SLACK_SECONDS
        case.wait_running(*starting)
        case.create_running(sharing(case, f"after-{ahead}", 4))
        until("annotations agree with kubelet", lambda: agree(environment, case))
    assert (lives(case, "before"), plugin_lives(environment)) == (kept, plugin)
    environment.wait_ready()
    fill(environment, case)


@pytest.mark.timeout(2400)
def test_a_read_only_root_disturbs_no_pod_and_starts_again_when_it_is_writable(
    environment: MachineEnvironment, case: Case
) -> None:
    """Running pods and the plugin go on, and accounts still agree; a failed pod holds nothing."""
    size = environment.nodes[NODE][0].units
    case.create_running(sharing(case, "one", size - 4), sharing(case, "two", size - 4))
    kept, plugin = lives(case, "one", "two"), plugin_lives(environment)
    with read_only_root(environment.machine):
        case.kubectl.apply(sharing(case, "refused", 4))
        until("kubelet reports it", lambda: READ_ONLY in _about(case, "refused"))
        case.kubectl.apply(sharing(case, "too-large", 5))
        until("no share counts as free", lambda: case.events("FailedScheduling", "too-large"))
        assert (lives(case, "one", "two"), plugin_lives(environment)) == (kept, plugin)
    assert writable(environment.machine, "/var/lib/kubelet")
    # No program runs in a container of a read-only machine, so kubelet's accounts are read now.
    until("annotations agree with kubelet", lambda: agree(environment, case))
    case.delete("refused")
    case.create_running(sharing(case, "three", 4))
    assert (lives(case, "one", "two"), plugin_lives(environment)) == (kept, plugin)
    fill(environment, case)


def _about(case: Case, name: str) -> str:
    """The status of a pod and its events, in lower case."""
    events = [
        event["message"]
        for event in case.objects.events(case.name)
        if event["involvedObject"].get("name") == name
    ]
    return " ".join([str(case.get(name)["status"]), *events]).lower()


@pytest.mark.timeout(2400)
def test_a_kubelet_that_refuses_swap_loses_no_account(
    environment: MachineEnvironment, case: Case
) -> None:
    """With its defaults kubelet does not start on swap; pods run on, and it serves without swap."""
    machine, size = environment.machine, environment.nodes[NODE][0].units
    case.create_running(sharing(case, "one", size - 4), sharing(case, "two", size - 4))
    kept, plugin, ran = lives(case, "one", "two"), plugin_lives(environment), tasks(machine)
    with swap(machine):
        machine.shell("systemctl restart --no-block kubelet")
        restarted = "journalctl --no-pager --unit=kubelet --since=-60s"
        words = "running with swap on is not supported"
        until("kubelet refuses swap", lambda: words in machine.shell(restarted))
        assert tasks(machine) == ran
    registered(environment)
    until("kubelet accounts for both", lambda: used(environment) == [size - 4] * 2)
    assert (lives(case, "one", "two"), plugin_lives(environment)) == (kept, plugin)
    fill(environment, case)


@pytest.mark.timeout(2400)
def test_pods_with_swap_share_gpus_as_others(environment: MachineEnvironment, case: Case) -> None:
    """With LimitedSwap a pod gets swap, and shares are the same before, with and after it."""
    machine, size = environment.machine, environment.nodes[NODE][0].units
    case.create_running(sharing(case, "one", size - 4))
    kept = lives(case, "one")
    with swap(machine):
        configure_kubelet(machine, failSwapOn=False, memorySwap={"swapBehavior": "LimitedSwap"})
        registered(environment)
        pod = sharing(case, "swapping", 4)
        (container,) = pod["spec"]["containers"]
        container["resources"]["requests"] = {"memory": "64Mi"}
        case.create_running(pod)
        swap_max = (
            "exec",
            "swapping",
            "-n",
            case.name,
            "--",
            "cat",
            "/sys/fs/cgroup/memory.swap.max",
        )
        assert int(case.kubectl(*swap_max)) > 0
        until("annotations agree with kubelet", lambda: agree(environment, case))
        case.delete("swapping")
    configure_kubelet(machine, failSwapOn=True, memorySwap={})
    registered(environment)
    assert lives(case, "one") == kept
    fill(environment, case)


@pytest.mark.timeout(3600)
def test_a_full_directory_of_the_plugin_refuses_pods_with_the_reason(
    environment: MachineEnvironment, case: Case
) -> None:
    """Running pods keep their shares, the refusal names the disk, and with space pods start."""
    machine, size = environment.machine, environment.nodes[NODE][0].units
    case.create_running(sharing(case, "one", size - 4), sharing(case, "two", size - 4))
    kept = lives(case, "one", "two")
    with small_directory(machine, CDI), small_directory(machine, HISTORIES):
        # containerd and the plugin have the directories that were there before.
        machine.shell("systemctl restart containerd")
        restart_plugin(environment)
        with full(machine, CDI), full(machine, HISTORIES):
            case.kubectl.apply(sharing(case, "refused", 4))
            until("the pod is refused", lambda: case.get("refused")["status"].get("reason"))
            message = case.get("refused")["status"]["message"]
            assert "cannot write the CDI file that limits the container" in message
            assert "No space left on device" in message
            end_plugin(environment)
            assert NOT_SAVED in plugin_log(environment, "--previous")
            until("annotations agree with kubelet", lambda: agree(environment, case))
            assert used(environment) == [size - 4] * 2
        case.create_running(sharing(case, "three", 4))
        end_plugin(environment)
        machine.shell(f"test -s {HISTORIES}/usage-history.json")
    machine.shell("systemctl restart containerd")
    restart_plugin(environment)
    assert lives(case, "one", "two") == kept
    fill(environment, case)


@pytest.mark.timeout(3600)
def test_a_full_disk_frees_the_shares_of_evicted_pods(
    environment: MachineEnvironment, case: Case
) -> None:
    """Kubelet evicts pods and not the plugin; with space others get the same units and the rest."""
    machine, size = environment.machine, environment.nodes[NODE][0].units
    pin_images(machine)
    configure_kubelet(machine, evictionPressureTransitionPeriod="10s")
    registered(environment)
    case.kubectl.apply(replicas(case, "served", size - 4, 2))
    until("they run", lambda: len(case.running("served")) == 2)
    before, plugin = set(case.running("served")), plugin_lives(environment)
    with full(machine, "/var/lib"):
        until("kubelet reports the full disk", lambda: pressure(environment) == "True")
        until("both are evicted", lambda: set(evicted(case)) >= before)
        assert plugin_lives(environment) == plugin
    until("the disk has space", lambda: pressure(environment) == "False")
    until("others run in their place", lambda: len(case.running("served")) == 2)
    assert not before & set(case.running("served"))
    fill(environment, case)


def pressure(environment: MachineEnvironment) -> str:
    """Status of the node's condition DiskPressure."""
    conditions = environment.objects.node(NODE)["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == "DiskPressure")


def evicted(case: Case) -> list[str]:
    """Names of pods that kubelet has evicted."""
    pods = [pod for pod in case.pods() if pod["status"].get("reason") == "Evicted"]
    return [pod["metadata"]["name"] for pod in pods]
