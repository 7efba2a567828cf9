"""Pods over several GPUs: kubelet's devices are on the GPUs, and as many, as the scheduler counts.

kubelet gives the devices of an init container to the containers after it, in any order, and takes
the resources of a container in any order too.
"""

import random
from collections.abc import Iterator, Mapping
from itertools import count

import msgspec
import pytest
from nodepods import Kubelet, machine, make_pod, matcher

from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, Inventory, Placement, PodRequest
from gpucore.node.allocation.device_ids import Resource, device_table
from gpucore.node.allocation.holdings import Held
from gpucore.node.allocation.matcher import AllocationMatcher, Granted
from gpucore.node.allocation.reading import expected_of
from gpucore.node.reconcile.corrections import CorrectionInput, corrections
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.spec import Container, Pod
from gpucore.wire.whole_requests import pod_request_of

MEM, CORE = Resource.MEM, Resource.CORE
SHARES = (MEM, CORE)
Ids = dict[Resource, tuple[str, ...]]


def request_of(pod: Pod) -> PodRequest:
    """What the pod requests."""
    found = pod_request_of(pod, NAMES)
    assert found is not None
    return found


def bound(pod: Pod, placement: Placement, inventory: Inventory) -> Pod:
    """The pod with the annotations of its Binding."""
    request = request_of(pod)
    texts = annotations_of(placement, request, NAMES, inventory=inventory, assume_time=1)
    return msgspec.structs.replace(pod, annotations=texts)


def admitted(state: AllocationMatcher, pod: Pod, chance: random.Random) -> dict[str, Ids]:
    """Admit the pod as kubelet does; its ids by container."""
    kubelet, reusable = Kubelet(state), dict[Resource, set[str]]()
    for each in Resource:
        kubelet.used[each] = set(state.holdings.taken(each))
    found: dict[str, Ids] = {}
    for container in (*pod.init_containers, *pod.containers):
        found[container.name] = dict(_taken(kubelet, container, reusable, chance))
        is_init = container in pod.init_containers and not container.is_sidecar
        for each, ids in found[container.name].items():
            left = reusable.setdefault(each, set())
            left.update(ids) if is_init else left.difference_update(ids)
    return found


def _taken(
    kubelet: Kubelet,
    container: Container,
    reusable: Mapping[Resource, set[str]],
    chance: random.Random,
) -> Iterator[tuple[Resource, tuple[str, ...]]]:
    for each in chance.sample(SHARES, 2):
        amount = int(container.limits.get(each.full_name(NAMES), "0"))
        again = sorted(reusable.get(each, ()))
        chance.shuffle(again)
        if not amount:
            continue
        if len(again) >= amount:
            answer = kubelet.matcher.allocate(each, tuple(again[:amount]))
        else:
            answer = kubelet.take(amount, each, again)
        assert isinstance(answer, Granted), answer
        yield each, answer.ids


def random_pod(chance: random.Random, name: str) -> Pod:
    """A pod over two or three GPUs with containers of few units."""

    def amounts(absent: float) -> dict[str, int]:
        units = 0 if chance.random() < absent else chance.choice((1, 1, 2, 3, 4))
        percent = chance.choice((1, 2, 4, 10)) if chance.random() < 0.4 else 0
        found = {MEM.value: units, CORE.value: percent}
        return {resource: amount for resource, amount in found.items() if amount}

    return make_pod(
        name,
        *(amounts(0.2) for _ in range(chance.randint(1, 3))),
        inits=[amounts(0.5) for _ in range(chance.randint(0, 2))],
        sidecars=[amounts(0.5) for _ in range(chance.randint(0, 1))],
        labels={NAMES.gpu_count: chance.choice("23")},
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_each_gpu_gives_a_pod_what_the_scheduler_counts(seed: int) -> None:
    """No pod that the scheduler placed is refused by the node, or has more of a GPU."""
    chance = random.Random(seed)
    inventory = machine(*(chance.choice((6, 10, 15)) for _ in range(chance.randint(2, 4))))
    state = matcher(inventory)
    node_info = NodeInfo(NodeName("n1"), NodeCapacity(inventory=inventory, offers_shares=True))
    for number in range(8):
        pod = random_pod(chance, f"p{number}")
        placement = place(node_info, request_of(pod)) if pod_request_of(pod, NAMES) else None
        if not isinstance(placement, Placement):
            continue
        node_info.put(Allocation(PodUid(pod.uid), "", "", AllocationState.BOUND, placement))
        waiting = expected_of(bound(pod, placement, inventory), NAMES)
        assert waiting is not None
        state.queue.see(waiting)
        rows = admitted(state, pod, chance).values()
        for each, counted in ((MEM, placement.mem), (CORE, placement.core)):
            ids = {one for row in rows for one in row.get(each, ())}
            given = state.tables[each].per_device(ids)
            assert all(amount <= counted[gpu] for gpu, amount in given.items()), each


def test_an_init_container_has_devices_of_the_gpu_of_the_container_after_it() -> None:
    """The sidecar gets them again, and the container has its unit of the other GPU."""
    pod = make_pod(
        "p",
        {MEM.value: 1},
        inits=[{MEM.value: 1}],
        sidecars=[{MEM.value: 1}],
        labels={NAMES.gpu_count: "2"},
    )
    inventory = machine(15, 15)
    placement = Placement(NodeName("n1"), {0: 1, 1: 1}, containers={0: {0: 1}, 1: {1: 1}})  # type: ignore[dict-item]
    waiting = expected_of(bound(pod, placement, inventory), NAMES)
    assert waiting is not None
    assert [(step.container, dict(step.plan[MEM])) for step in waiting.steps] == [
        ("i0", {1: 1}),
        ("s0", {1: 1}),
        ("c0", {0: 1}),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_what_no_scheduler_placed_counts_with_all_that_it_has(seed: int) -> None:
    """A pod that the extender would refuse cannot take devices of a GPU that nobody counts."""
    chance = random.Random(seed)
    inventory = machine(15, 15, 15)
    tables = {each: device_table(inventory, each) for each in Resource}
    pods = (random_pod(chance, f"p{seed}-{number}") for number in count())
    pod = next(pod for pod in pods if (found := pod_request_of(pod, NAMES)) and found.fault)
    waiting = expected_of(pod, NAMES)
    assert waiting is not None
    rows = admitted(matcher(inventory, waiting), pod, chance)
    running = {each.name for each in (*pod.containers, *pod.sidecars)}
    held = Held(
        pod.namespace, pod.name, {name: row for name, row in rows.items() if name in running}
    )
    for each in corrections([held], [pod], CorrectionInput(inventory, tables, NAMES, now_ns=1)):
        texts = {key: text for key, text in each.annotations.items() if text is not None}
        pod = msgspec.structs.replace(pod, annotations={**pod.annotations, **texts})
    allocation = allocation_of(pod, NAMES)
    assert allocation is not None
    pending = {MEM: allocation.pending, CORE: allocation.pending_core}
    for each, counted in ((MEM, allocation.placement.mem), (CORE, allocation.placement.core)):
        given = tables[each].per_device({one for row in rows.values() for one in row.get(each, ())})
        short = {gpu: amount for gpu, amount in given.items() if amount > counted.get(gpu, 0)}
        assert not short or sum(short.values()) <= pending[each], (each, given, counted)
