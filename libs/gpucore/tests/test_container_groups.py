"""Each container of a pod gets exclusive GPUs that are well joined with each other."""

from collections.abc import Sequence

import msgspec
import pytest
from corebuilders import NAMES, bound, ledger, limits, on_node, pod, pod_request
from hypothesis import given
from hypothesis import strategies as st
from linkedgpus import VOLTA, bare_node, joined_gpus, linked_node

from gpucore.model import Placement
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.reading import expected_of
from gpucore.scheduling.grouping import Grouping
from gpucore.scheduling.policy import place
from gpucore.topology.static import decode_static
from gpucore.units import NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Container, Pod

PAIRS = decode_static('{"boxed": {"2": [[3, 0], [2, 1]], "4": [[0, 1, 2, 3]]}}')


def of_containers(*gpus: int, init: int = 0, sidecar: int = 0, **texts: str) -> Pod:
    """A pod whose containers request so many exclusive GPUs each."""
    containers = tuple(Container(f"c{i}", limits=limits(gpus=n)) for i, n in enumerate(gpus))
    inits = (Container("i", limits=limits(gpus=init)),) if init else ()
    inits += (Container("s", limits(gpus=sidecar), restart_policy="Always"),) if sidecar else ()
    made = pod("p", annotations=texts)
    return msgspec.structs.replace(made, containers=containers, init_containers=inits)


def split(requested: Pod, node: Node | None = None) -> dict[str, list[int]]:
    """The GPUs of each container, as the device plugin reads them from the pod's annotations."""
    placement = on_node(ledger(node or linked_node("n")), "n", requested)
    assert isinstance(placement, Placement)
    expected = expected_of(bound(requested, placement, joined_gpus(VOLTA)), NAMES)
    assert expected is not None
    return {step.container: list(step.plan.get(Resource.GPU, {})) for step in expected.steps}


@pytest.mark.parametrize(
    ("requested", "parts"),
    [
        (of_containers(2, 2), {"c0": [0, 3], "c1": [1, 2]}),
        (of_containers(1, 2, 1), {"c0": [1], "c1": [0, 3], "c2": [2]}),
        (of_containers(2, 0, 2), {"c0": [0, 3], "c2": [1, 2]}),
        (of_containers(2, sidecar=2), {"s": [1, 2], "c0": [0, 3]}),
        (of_containers(2, init=4), {"i": [0, 3, 1, 2], "c0": [0, 3]}),
        (of_containers(4), {"c0": [0, 1, 2, 3]}),
        (of_containers(1, 1), {"c0": [0], "c1": [3]}),
    ],
)
def test_each_container_gets_the_best_joined_gpus_of_the_group(
    requested: Pod, parts: dict[str, list[int]]
) -> None:
    """On a DGX-1 with V100, GPUs 0 and 3 have two NVLinks, and so have 1 and 2."""
    assert split(requested) == parts


def test_simple_and_unknown_links_keep_the_order_of_indexes() -> None:
    """No links decide where the pod wants none, or where the node reports none."""
    simple = of_containers(2, 2, **{wire_names.TOPOLOGY: "simple"})
    assert split(simple) == {"c0": [0, 1], "c1": [2, 3]}
    assert split(of_containers(2, 2), bare_node("n", 4)) == {"c0": [0, 1], "c1": [2, 3]}


def test_configured_sets_serve_each_container_in_their_order() -> None:
    """The order of a set may be that of a ring."""
    info = ledger(linked_node("n", node_type="boxed")).nodes()[NodeName("n")]
    request = pod_request(of_containers(2, 2))
    placement = place(info, request, grouping=Grouping("static", PAIRS))
    assert isinstance(placement, Placement)
    assert placement.group == (3, 0, 2, 1)


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(
        lambda sizes: 0 < sum(sizes) <= 8
    ),
    policy=st.sampled_from(["best-effort", "bandwidth", "static"]),
)
def test_the_containers_share_the_group_of_the_pod(sizes: Sequence[int], policy: str) -> None:
    """The set of GPUs is that of a pod with one container.

    With ``bandwidth`` no part is joined better than that of the first container of its size.
    """
    texts = {wire_names.TOPOLOGY: policy}
    parts = split(of_containers(*sizes, **texts))
    (whole,) = split(of_containers(sum(sizes), **texts)).values()
    assert sorted(gpu for part in parts.values() for gpu in part) == sorted(whole)
    assert [len(parts.get(f"c{i}", ())) for i in range(len(sizes))] == list(sizes)
    if policy == "bandwidth":
        largest = parts[f"c{sizes.index(max(sizes))}"]
        mine = _slowest(largest)
        assert all(mine >= _slowest(part) for part in parts.values() if len(part) == len(largest))


def _slowest(gpus: Sequence[int]) -> int:
    return min((VOLTA.score(a, b) for a in gpus for b in gpus if a != b), default=0)
