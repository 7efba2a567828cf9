"""Variables of a pod over those of the device plugin: which count, and for which containers."""

import pytest

from gpucore.node.isolation.limits import Unlimited, declared
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES, ENV_VISIBLE_DEVICES, LIMITING_ENV
from gpucore.wire.pod.overrides import overrides
from gpucore.wire.pod.spec import Container, Pod

MEMORY, THREADS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
SHARE = {"aliyun.com/gpu-mem": "2"}


def setting(*variables: str, prefixes: tuple[str, ...] = ()) -> Container:
    """A container that sets variables, and takes others from ConfigMaps under these prefixes."""
    return Container("c0", {}, env=variables, env_prefixes=prefixes)


def test_only_protected_variables_count_and_only_their_containers_are_named() -> None:
    """The containers of a pod may set everything else."""
    found = overrides([setting("PATH", MEMORY, THREADS), Container("c1", {})], requests_gpus=True)
    assert found == {"c0": (THREADS, MEMORY)}


def test_a_pod_without_gpus_may_set_limits_but_no_gpus() -> None:
    """A limit of its own harms no other pod; a visible GPU would."""
    container = setting(ENV_VISIBLE_DEVICES, *LIMITING_ENV)
    assert overrides([container], requests_gpus=False) == {"c0": (ENV_VISIBLE_DEVICES,)}
    assert overrides([container], requests_gpus=True) == {
        "c0": tuple(sorted({ENV_VISIBLE_DEVICES, *LIMITING_ENV}))
    }


@pytest.mark.parametrize(
    ("prefixes", "found"),
    [
        ((), {}),
        (("APP_",), {}),
        (("CUDA_MPS_PINNED_",), {"c0": (MEMORY,)}),
        (("APP_", "CUDA_MPS_ACTIVE_"), {"c0": (THREADS,)}),
    ],
)
def test_a_prefix_counts_where_it_can_make_a_protected_name(
    prefixes: tuple[str, ...], found: dict[str, tuple[str, ...]]
) -> None:
    """The names in a ConfigMap are not in the pod; its prefix is."""
    assert overrides([setting(prefixes=prefixes)], requests_gpus=True) == found


@pytest.mark.parametrize("kind", ["containers", "init_containers", "ephemeral_containers"])
def test_every_kind_of_container_of_a_share_is_looked_at(kind: str) -> None:
    """Init and ephemeral containers see the pod's GPU too."""
    share = Container("main", SHARE)
    groups = {"containers": (share,), kind: (share, setting(MEMORY))}
    pod = Pod(PodUid("u"), "team", "a", NodeName("n1"), **groups)
    assert declared(pod, DEFAULT_NAMES) == {"c0": (MEMORY,)}


@pytest.mark.parametrize("amount", [None, "many"])
def test_a_pod_without_a_share_declares_nothing(amount: str | None) -> None:
    """Nor does one whose request cannot be read: it holds no GPU."""
    requests = {"aliyun.com/gpu-mem": amount} if amount else {}
    pod = Pod(
        PodUid("u"),
        "team",
        "a",
        NodeName("n1"),
        containers=(Container("main", requests, env=(MEMORY,)),),
    )
    assert declared(pod, DEFAULT_NAMES) == {}


def test_a_process_outside_mps_counts_when_it_was_seen_twice_in_a_row() -> None:
    """A process that begins between two lists of NVML, or whose kind is unknown, is none."""
    owners, unlimited = {1: PodUid("a"), 2: PodUid("b")}, Unlimited()
    assert unlimited.pods({1: False, 2: True}, owners) == set()
    assert unlimited.pods({1: None, 2: False}, owners) == set()
    assert unlimited.pods({1: False, 2: False, 3: False}, owners) == {"b"}
    assert unlimited.pods({1: False, 3: False}, owners) == {"a"}
