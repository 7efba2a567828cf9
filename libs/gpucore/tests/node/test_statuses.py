"""Small readings: starts of pods, owners of processes, links for the first topology plugin."""

import json

import pytest

from gpucore.node.health.container_starts import Start, start_of
from gpucore.node.isolation.attribution import Attribution, attribute, corrected, pod_of
from gpucore.units import PodUid

HOOK = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: error during container init: error running "
    "prestart hook #0: exit status 1, stdout: , stderr: nvidia-container-cli: initialization "
    "error: nvml error: driver not loaded: unknown"
)
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def line(*states: dict[str, object], last: dict[str, object] | None = None) -> bytes:
    statuses = [{"state": state, "lastState": last or {}} for state in states]
    return json.dumps(
        {"type": "MODIFIED", "object": {"status": {"containerStatuses": statuses}}}
    ).encode()


@pytest.mark.parametrize(
    ("raw", "start"),
    [
        (line({"running": {"startedAt": "x"}}), Start.RUNS),
        (line({"waiting": {"reason": "RunContainerError", "message": HOOK}}), Start.FAILED),
        (line({"waiting": {"reason": "CrashLoopBackOff"}}), Start.UNDECIDED),
        (
            line(
                {"waiting": {"reason": "CrashLoopBackOff"}},
                last={"terminated": {"reason": "StartError", "message": HOOK}},
            ),
            Start.FAILED,
        ),
        (line({"waiting": {"reason": "ImagePullBackOff"}}), Start.UNDECIDED),
        (line({"terminated": {"reason": "Error"}}), Start.UNDECIDED),
        (b'{"object": {}}', Start.UNDECIDED),
        (b"no json", Start.UNDECIDED),
    ],
    ids=["runs", "runtime", "crash", "start error", "image", "program", "no status", "garbage"],
)
def test_only_a_message_of_the_runtime_blames_the_gpu(raw: bytes, start: Start) -> None:
    """A failing GPU hook counts against the GPU; a failing program or image does not."""
    assert start_of(raw, ()) is start


def test_the_drivers_figure_takes_nothing_from_others() -> None:
    """It may be more than what was attributed to nobody: figures are of two moments."""
    found = corrected(Attribution({PodUid("a"): 5}, 10), {PodUid("a"): 7, PodUid("b"): 12})
    assert found == Attribution({PodUid("a"): 7, PodUid("b"): 12}, 0)
    found = corrected(Attribution({PodUid("a"): 5}, 10), {PodUid("b"): 4})
    assert found == Attribution({PodUid("a"): 5, PodUid("b"): 4}, 6)


@pytest.mark.parametrize(
    ("state", "start"),
    [
        ({"running": {"startedAt": "x"}}, Start.RUNS),
        ({"terminated": {"reason": "Completed"}}, Start.UNDECIDED),
    ],
)
def test_a_failure_before_a_start_that_worked_counts_no_more(
    state: dict[str, object], start: Start
) -> None:
    """Kubelet keeps the last state for as long as the container runs, in each event of the pod."""
    raw = line(state, last={"terminated": {"reason": "StartError", "message": HOOK}})
    assert start_of(raw, ()) is start


def test_init_containers_are_evidence_too() -> None:
    """They are the first that the runtime starts on the GPU."""
    failed = {"state": {"waiting": {"reason": "RunContainerError", "message": HOOK}}}
    raw = {"object": {"status": {"initContainerStatuses": [failed]}}}
    assert start_of(json.dumps(raw).encode(), ()) is Start.FAILED


def test_a_sidecar_that_runs_is_no_evidence_while_another_container_waits() -> None:
    """It may request no GPU: each new pod of a service mesh would clear the failures of others."""
    running = {"running": {"startedAt": "x"}}
    raw = line(running, {"waiting": {"reason": "ContainerCreating"}})
    assert start_of(raw, ()) is Start.UNDECIDED
    assert start_of(line(running, running), ()) is Start.RUNS


def test_a_container_that_failed_counts_though_another_runs() -> None:
    """One of two containers may request no GPU at all."""
    raw = line(
        {"running": {"startedAt": "x"}},
        {"waiting": {"reason": "RunContainerError", "message": HOOK}},
    )
    assert start_of(raw, ()) is Start.FAILED


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods/burstable/pod{UID}/abc\n",
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-abc.scope\n",
        f"5:devices:/kubepods/besteffort/pod{UID}/abc\n4:cpu:/kubepods/besteffort/pod{UID}/abc\n",
        f"0::/../../kubelet/kubepods/pod{UID}/abc",
    ],
    ids=["cgroupfs", "systemd", "v1", "kind"],
)
def test_a_process_belongs_to_the_pod_of_its_control_group(cgroup: str) -> None:
    """Every layout of control groups names the pod."""
    assert pod_of(cgroup) == UID


def test_a_static_pod_has_a_uid_without_dashes() -> None:
    """Static pods are named by a hash."""
    uid = "0f8fad5bd9cb469fa16570867728950e"
    assert pod_of(f"0::/kubepods/pod{uid}/abc") == uid


@pytest.mark.parametrize("cgroup", ["0::/system.slice/sshd.service", "", f"0::/podman-{UID}"])
def test_other_processes_belong_to_no_pod(cgroup: str) -> None:
    """Processes of the host are nobody's."""
    assert pod_of(cgroup) is None


def test_bytes_are_summed_by_pod_and_the_rest_is_nobodys() -> None:
    """Two processes of a pod add up; one that ended meanwhile is nobody's."""
    group = f"0::/kubepods/pod{UID}/abc"
    found = attribute({1: 10, 2: 20, 3: 5}, {1: group, 2: group})
    assert found.pods == {PodUid(UID): 30}
    assert found.unattributed == 5
