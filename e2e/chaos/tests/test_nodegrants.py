"""What is read from the processes and the checkpoint of a kind node."""

import json
from collections.abc import Mapping

from chaos.grants import ContainerGrant
from chaos.invariants import EXCLUSIVE, MEM
from chaos.nodegrants import CONTAINER, decode

UID = "0f6e3c1a-1111-4222-8333-944445555666"
SLICE = f"0::/kubelet.slice/kubelet-pod{UID.replace('-', '_')}.slice/cri-containerd-1.scope"


def process(cgroup: str, **environ: str) -> str:
    """As the script prints it."""
    lines = "".join(f"{name}={text}\n" for name, text in environ.items())
    return f"process {cgroup}\n{lines}\n"


def checkpoint(*entries: Mapping[str, object]) -> str:
    """As kubelet writes it."""
    return "checkpoint\n" + json.dumps({"Data": {"PodDeviceEntries": list(entries)}, "Checksum": 1})


def entry(container: str, resource: str, *ids: str, uid: str = UID) -> Mapping[str, object]:
    """Devices of one container."""
    return {
        "PodUID": uid,
        "ContainerName": container,
        "ResourceName": resource,
        "DeviceIDs": {"0": ids[:1], "1": ids[1:]},
    }


def test_a_process_has_the_devices_of_its_container_in_the_checkpoint() -> None:
    """They are joined by the pod's UID, which is in the cgroup, and the container's name."""
    environ = {CONTAINER: "c0", "HOSTNAME": "load-1", "NVIDIA_VISIBLE_DEVICES": "GPU-a"}
    other = {CONTAINER: "c1", "HOSTNAME": "load-1", "NVIDIA_VISIBLE_DEVICES": "GPU-b"}
    found = decode(
        process(SLICE, **environ)
        + process(f"0::/kubepods/pod{UID}/f00", **other)
        + checkpoint(entry("c0", MEM, "GPU-a-_-0", "GPU-a-_-1"), entry("c1", EXCLUSIVE, "GPU-b"))
    )
    assert found.pods.keys() == {UID}
    assert found.pods[UID].name == "load-1"
    assert found.pods[UID].containers == {
        "c0": ContainerGrant({MEM: ["GPU-a-_-0", "GPU-a-_-1"]}, environ),
        "c1": ContainerGrant({EXCLUSIVE: ["GPU-b"]}, other),
    }


def test_devices_of_a_pod_without_processes_are_not_counted() -> None:
    """The checkpoint keeps them until kubelet allocates the next."""
    assert decode(checkpoint(entry("c0", MEM, "GPU-a-_-0"))).pods == {}


def test_a_process_without_devices_is_found() -> None:
    """The accounts then differ: a pod runs and holds nothing."""
    found = decode(process(SLICE, HOSTNAME="load-2", **{CONTAINER: "c0"}) + "checkpoint\n")
    assert found.pods[UID].containers["c0"].ids == {}
