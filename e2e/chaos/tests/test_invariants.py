"""What the checks of a chaos run accept and what they report."""

from pathlib import Path

import pytest

from chaos.grants import ContainerGrant, GrantedPod, NodeGrants
from chaos.invariants import CORE, EXCLUSIVE, MEM, capacity_faults

MACHINES = {"n": {"GPU-a": 4, "GPU-b": 4}}


def devices(gpu: str, first: int, count: int) -> list[str]:
    """Device IDs as the plugin names them."""
    return [f"{gpu}-_-{number}" for number in range(first, first + count)]


def container(gpu: str, first: int, count: int, *, resource: str = MEM) -> ContainerGrant:
    """A container with devices of one GPU, and the environment that belongs to them."""
    envs = {"NVIDIA_VISIBLE_DEVICES": gpu}
    if resource == MEM:
        envs["ALIYUN_COM_GPU_MEM_CONTAINER"] = str(count)
    return ContainerGrant({resource: devices(gpu, first, count)}, envs)


def faults(**pods: ContainerGrant) -> list[str]:
    """What the check reports about pods of one container each."""
    held = {name: GrantedPod("default", name, {"c": one}) for name, one in pods.items()}
    return capacity_faults({"n": NodeGrants(held)}, MACHINES)


def test_shares_within_a_gpu_are_accepted() -> None:
    """A full GPU, compute on it, and an exclusive GPU beside it are no fault."""
    found = faults(
        one=container("GPU-a", 0, 2),
        two=container("GPU-a", 2, 2),
        three=container("GPU-a", 0, 100, resource=CORE),
        four=container("GPU-b", 0, 1, resource=EXCLUSIVE),
    )
    assert found == []


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        (container("GPU-a", 0, 3), container("GPU-a", 3, 2), "exceed 4 units"),
        (container("GPU-a", 0, 2), container("GPU-a", 1, 2), "is held by one and two"),
        (
            container("GPU-a", 0, 1),
            container("GPU-a", 0, 1, resource=EXCLUSIVE),
            "exclusive to ['two']",
        ),
        (
            container("GPU-a", 0, 60, resource=CORE),
            container("GPU-a", 60, 60, resource=CORE),
            "exceed 100 percent",
        ),
        (container("GPU-a", 0, 1), container("GPU-c", 0, 1), "not a GPU of the node"),
    ],
)
def test_a_gpu_over_its_capacity_is_reported(
    first: ContainerGrant, second: ContainerGrant, word: str
) -> None:
    """Two holders that a GPU cannot have at once give a sentence that names the fault."""
    assert any(word in fault for fault in faults(one=first, two=second))


def test_an_environment_of_another_gpu_is_reported() -> None:
    """What a container sees must be the GPU of its devices, and the amount theirs."""
    wrong = ContainerGrant(
        {MEM: devices("GPU-a", 0, 2)},
        {"NVIDIA_VISIBLE_DEVICES": "GPU-b", "ALIYUN_COM_GPU_MEM_CONTAINER": "1"},
    )
    assert faults(one=wrong) == [
        "one has devices of ['GPU-a'], but sees GPU-b",
        "one has 2 units, but its environment states 1",
    ]


def test_grants_survive_their_kubelet(tmp_path: Path) -> None:
    """What was written is read again, and a node without a file has no grants."""
    file = tmp_path / "grants.json"
    assert NodeGrants.read(file) == NodeGrants()
    held = NodeGrants({"uid": GrantedPod("default", "one", {"c": container("GPU-a", 0, 1)})}, [MEM])
    held.write(file)
    assert NodeGrants.read(file) == held
    assert held.in_use(MEM) == {"GPU-a-_-0"}
