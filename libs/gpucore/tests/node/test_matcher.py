"""Which GPU a pod gets on the node: its plan, else another with room, else a sentence."""

from collections import Counter

import msgspec
import pytest
from nodepods import Kubelet, expected, machine, make_gpu, matcher, plan

from gpucore.model import Inventory
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held, Holder
from gpucore.node.allocation.matcher import AllocationMatcher, Granted
from gpucore.wire import names as wire_names
from gpucore.wire.names import DEFAULT_NAMES

MEM, CORE, GPU = Resource.MEM, Resource.CORE, Resource.GPU


def make_gpus(answer: object) -> dict[int, int]:
    assert isinstance(answer, Granted), answer
    return dict(answer.gpus)


def denied(answer: object, code: AllocationErrorCode) -> str:
    assert isinstance(answer, AllocationError), answer
    assert answer.code is code
    return answer.sentence


def ids(state: AllocationMatcher, on: dict[int, int], resource: Resource = MEM) -> tuple[str, ...]:
    table = state.tables[resource]
    return tuple(one for index, n in on.items() for one in table.ids[index][:n])  # type: ignore[index]


def test_a_planned_pod_gets_its_gpu_though_another_fits_better() -> None:
    """The plan wins over best fit."""
    kubelet = Kubelet(matcher(machine(15, 4), expected("p", {"gpu-mem": 3}, annotations=plan(0))))
    assert make_gpus(kubelet.take(3)) == {0: 3}


def test_equal_pods_get_their_own_gpus_in_order_of_arrival() -> None:
    """Sixteen pods of half a GPU on eight GPUs: two on each, each where it was planned."""
    pods = [
        expected(f"p{i}", {"gpu-mem": 7}, annotations=plan(index))
        for i, index in enumerate([3, 0, 7, 5, 1, 6, 2, 4, 4, 2, 6, 1, 5, 7, 0, 3])
    ]
    kubelet = Kubelet(matcher(machine(*[15] * 8), *pods))
    taken = [next(iter(make_gpus(kubelet.take(7)))) for _ in pods]
    assert taken == [3, 0, 7, 5, 1, 6, 2, 4, 4, 2, 6, 1, 5, 7, 0, 3]
    assert set(Counter(taken).values()) == {2}


def test_an_unplanned_pod_is_placed_by_best_fit() -> None:
    """A pod without a plan gets the fullest GPU that holds all of it, lowest index first."""
    kubelet = Kubelet(matcher(machine(15, 8, 8), expected("p", {"gpu-mem": 3}, {"gpu-mem": 2})))
    assert make_gpus(kubelet.take(3)) == {1: 3}
    assert make_gpus(kubelet.take(2)) == {1: 2}


def test_an_unplanned_pod_is_not_torn_apart_at_its_second_container() -> None:
    """Best fit counts the whole pod: room for its first container alone is not enough."""
    kubelet = Kubelet(matcher(machine(15, 4), expected("p", {"gpu-mem": 3}, {"gpu-mem": 3})))
    assert make_gpus(kubelet.take(3)) == {0: 3}


def test_memory_of_an_unknown_pod_is_on_the_gpu_of_its_compute_or_refused() -> None:
    """The watch is behind; a container with two GPUs would see one, of which it has no memory."""
    kubelet = Kubelet(matcher(machine(15, 15)))
    assert make_gpus(kubelet.take(12)) == {0: 12}
    assert make_gpus(kubelet.take(25, CORE)) == {0: 25}
    assert "GPU 0 has 3 of 15 free" in denied(kubelet.take(5), AllocationErrorCode.NO_GPU_FITS)
    assert make_gpus(kubelet.take(3)) == {0: 3}


def test_best_fit_leaves_room_that_is_promised_to_a_waiting_pod() -> None:
    """A pod that bypassed the scheduler does not take what a planned pod is about to get."""
    waiting = expected("planned", {"gpu-mem": 6}, annotations=plan(1))
    kubelet = Kubelet(matcher(machine(15, 8), waiting, expected("stray", {"gpu-mem": 3})))
    assert make_gpus(kubelet.take(3)) == {0: 3}
    assert make_gpus(kubelet.take(6)) == {1: 6}


def test_a_pod_that_has_its_devices_and_waits_to_run_is_counted_once() -> None:
    """Its plan is no promise any more, so best fit sees all that the GPU has left."""
    waiting = expected("planned", {"gpu-mem": 6}, annotations=plan(0))
    kubelet = Kubelet(matcher(machine(15, 20), waiting, expected("stray", {"gpu-mem": 9})))
    assert make_gpus(kubelet.take(6)) == {0: 6}
    assert make_gpus(kubelet.take(9)) == {0: 9}


def test_promised_room_is_taken_where_nothing_else_is_left() -> None:
    """Kubelet admits what there is; a promise does not leave a GPU idle."""
    waiting = expected("planned", {"gpu-mem": 6}, annotations=plan(0))
    kubelet = Kubelet(matcher(machine(8), waiting, expected("stray", {"gpu-mem": 3})))
    assert make_gpus(kubelet.take(3)) == {0: 3}


def test_a_clash_is_placed_anew_on_a_gpu_with_room_for_all_of_the_pod() -> None:
    """Two schedulers gave the same room away: the loser goes where it fits as a whole."""
    first = expected("a", {"gpu-mem": 9}, annotations=plan(0))
    second = expected("b", {"gpu-mem": 7}, {"gpu-mem": 4}, annotations=plan(0))
    kubelet = Kubelet(matcher(machine(15, 10, 12), first, second))
    assert make_gpus(kubelet.take(9)) == {0: 9}
    assert make_gpus(kubelet.take(7)) == {2: 7}
    assert make_gpus(kubelet.take(4)) == {2: 4}


def test_a_clash_without_room_is_refused_with_figures_of_every_gpu() -> None:
    """No GPU has room: the sentence states how much each has, and the next pod is not held up."""
    first = expected("a", {"gpu-mem": 9}, annotations=plan(0))
    second = expected("b", {"gpu-mem": 7}, annotations=plan(0))
    third = expected("c", {"gpu-mem": 4}, annotations=plan(1))
    kubelet = Kubelet(matcher(machine(15, 4), first, second, third))
    kubelet.take(9)
    sentence = denied(kubelet.take(7), AllocationErrorCode.NO_GPU_FITS)
    assert sentence == "no GPU has 7 of gpu-mem free: GPU 0 has 6 of 15 free, GPU 1 has 4 of 4 free"
    assert make_gpus(kubelet.take(4)) == {1: 4}


def test_units_of_a_gpu_that_is_used_exclusively_are_not_free() -> None:
    """Kubelet lists them as available, for it counts each resource by itself."""
    whole = expected("a", {"gpu": 1}, annotations={"ALIYUN_COM_GPU_GROUP": "0"})
    kubelet = Kubelet(matcher(machine(15, 4), whole, expected("b", {"gpu-mem": 7})))
    kubelet.take(1, GPU)
    sentence = denied(kubelet.take(7), AllocationErrorCode.NO_GPU_FITS)
    assert sentence == "no GPU has 7 of gpu-mem free: GPU 0 has 0 of 15 free, GPU 1 has 4 of 4 free"


def test_a_share_of_memory_and_compute_is_refused_with_both() -> None:
    """One GPU has enough of the one and one of the other."""
    first = expected("a", {"gpu-mem": 12, "gpu-core.percentage": 10}, annotations=plan(0))
    second = expected("b", {"gpu-mem": 1, "gpu-core.percentage": 60}, annotations=plan(1))
    third = expected("c", {"gpu-mem": 7, "gpu-core.percentage": 50})
    kubelet = Kubelet(matcher(machine(15, 15), first, second, third))
    for memory, compute in ((12, 10), (1, 60)):
        make_gpus(kubelet.take(memory))
        make_gpus(kubelet.take(compute, CORE))
    assert denied(kubelet.take(7), AllocationErrorCode.NO_GPU_FITS) == (
        "no GPU has 7 of gpu-mem and 50 of gpu-core.percentage free: GPU 0 has 3 of 15 and 90 of "
        "100 free, GPU 1 has 14 of 15 and 40 of 100 free"
    )


def test_too_few_exclusive_gpus_are_refused_with_their_number() -> None:
    """A shared one is not free, though kubelet lists it as available."""
    share, whole = expected("a", {"gpu-mem": 4}), expected("b", {"gpu": 3})
    kubelet = Kubelet(matcher(machine(15, 15, 15), share, whole))
    kubelet.take(4)
    assert denied(kubelet.take(3, GPU), AllocationErrorCode.NO_GPU_FITS) == (
        "2 of 3 GPUs are free, and the container requests 3 exclusive GPUs"
    )


def test_compute_and_memory_of_a_container_are_on_the_same_gpu() -> None:
    """Whatever kubelet calls first, the other resource follows to the GPU of the first."""
    ask = {"gpu-mem": 3, "gpu-core.percentage": 30}
    for order in ((MEM, CORE), (CORE, MEM)):
        kubelet = Kubelet(matcher(machine(15, 8), expected("p", ask)))
        amounts = {MEM: 3, CORE: 30}
        got = [make_gpus(kubelet.take(amounts[each], each)) for each in order]
        assert {next(iter(each)) for each in got} == {1}


def test_best_fit_for_memory_looks_at_compute_too() -> None:
    """A GPU whose compute is spent is passed by although its memory fits best."""
    state = matcher(machine(15, 8), expected("p", {"gpu-mem": 3, "gpu-core.percentage": 30}))
    state.holdings.take(CORE, ids(state, {1: 90}, CORE), Holder("default", "x", "c0"))
    assert make_gpus(Kubelet(state).take(3)) == {0: 3}


def test_a_pod_over_several_gpus_gets_its_part_of_each() -> None:
    """gpu-count 2: N units are taken half and half as in the map."""
    annotations = {wire_names.V2_ALLOCATION: '{"0": {"0": 4, "2": 4}}'}
    labels = {DEFAULT_NAMES.gpu_count: "2"}
    pod = expected("p", {"gpu-mem": 8}, annotations=annotations, labels=labels)
    kubelet = Kubelet(matcher(machine(15, 15, 15), pod))
    assert make_gpus(kubelet.take(8)) == {0: 4, 2: 4}


def test_containers_with_fewer_units_than_gpus_get_their_own_gpus() -> None:
    """gpu-count 2 and a unit for each container: the second follows its plan, not the first."""
    annotations = {wire_names.V2_ALLOCATION: '{"0": {"0": 1}, "1": {"2": 1}}'}
    labels = {DEFAULT_NAMES.gpu_count: "2"}
    pod = expected("p", {"gpu-mem": 1}, {"gpu-mem": 1}, annotations=annotations, labels=labels)
    kubelet = Kubelet(matcher(machine(1, 15, 15), pod))
    assert make_gpus(kubelet.take(1)) == {0: 1}
    assert make_gpus(kubelet.take(1)) == {2: 1}


def test_a_small_init_container_does_not_draw_its_pod_to_one_gpu() -> None:
    """gpu-count 2: it has one percent of the first GPU, and the container half of each."""
    annotations = {
        wire_names.V2_ALLOCATION: '{"0": {"0": 4, "2": 4}}',
        wire_names.V3_CORE_PERCENTAGE: '{"0": {"0": 2, "2": 2}}',
    }
    pod = expected(
        "p",
        {"gpu-mem": 8, "gpu-core.percentage": 4},
        inits=[{"gpu-core.percentage": 1}],
        annotations=annotations,
        labels={DEFAULT_NAMES.gpu_count: "2"},
    )
    kubelet = Kubelet(matcher(machine(5, 15, 15), pod))
    init = kubelet.take(1, CORE)
    assert make_gpus(init) == {0: 1}
    assert make_gpus(kubelet.take(8)) == {0: 4, 2: 4}
    assert make_gpus(kubelet.take(4, CORE, init.ids)) == {0: 2, 2: 2}


def test_a_pod_over_several_gpus_never_ends_on_more() -> None:
    """gpu-count 2 and another pod on its second GPU: the third GPU is none of its two."""
    annotations = {wire_names.V2_ALLOCATION: '{"0": {"0": 1, "1": 1}, "1": {"1": 1, "0": 1}}'}
    labels = {DEFAULT_NAMES.gpu_count: "2"}
    pod = expected("p", {"gpu-mem": 2}, {"gpu-mem": 2}, annotations=annotations, labels=labels)
    state = matcher(machine(15, 15, 15), pod)
    assert make_gpus(state.allocate(MEM, ids(state, {0: 1, 2: 1}))) == {0: 1, 2: 1}
    denied(state.allocate(MEM, ids(state, {1: 2})), AllocationErrorCode.SPLITS_POD)


def test_a_clash_of_a_pod_over_several_gpus_finds_other_gpus() -> None:
    """A planned GPU is full: the pod gets two others with room for its part."""
    annotations = {wire_names.V2_ALLOCATION: '{"0": {"0": 4, "2": 4}}'}
    labels = {DEFAULT_NAMES.gpu_count: "2"}
    blocker = expected("b", {"gpu-mem": 14}, annotations=plan(0))
    pod = expected("p", {"gpu-mem": 8}, annotations=annotations, labels=labels)
    kubelet = Kubelet(matcher(machine(15, 15, 15), blocker, pod))
    kubelet.take(14)
    assert make_gpus(kubelet.take(8)) == {1: 4, 2: 4}


def test_ids_of_an_init_container_are_taken_again_on_the_same_gpu() -> None:
    """Kubelet reuses an init container's ids; what is missing comes from the same GPU."""
    pod = expected("p", {"gpu-mem": 6}, inits=[{"gpu-mem": 4}], annotations=plan(1))
    kubelet = Kubelet(matcher(machine(15, 15), pod))
    init = kubelet.take(4)
    assert make_gpus(init) == {1: 4}
    answer = kubelet.take(6, required=init.ids)
    assert make_gpus(answer) == {1: 6}
    assert set(init.ids) < set(answer.ids)


def test_ids_taken_without_a_preference_are_for_the_pod_in_progress() -> None:
    """All of a container's ids are reused: kubelet allocates without a question."""
    pod = expected("p", {"gpu-mem": 4}, {"gpu-mem": 2}, inits=[{"gpu-mem": 4}])
    state = matcher(machine(15, 15), pod)
    init = Kubelet(state).take(4)
    again = state.allocate(MEM, init.ids)
    assert isinstance(again, Granted)
    assert again.turn is not None
    assert again.turn.step.container == "c0"


def test_the_last_units_spread_over_gpus_are_refused_to_a_pod_of_one_gpu() -> None:
    """Exactly enough is left, but on two GPUs: kubelet takes it by itself, and it is no share."""
    state = matcher(machine(15, 15), expected("p", {"gpu-mem": 4}))
    sentence = denied(state.allocate(MEM, ids(state, {0: 2, 1: 2})), AllocationErrorCode.SPANS_GPUS)
    assert "GPUs 0 and 1" in sentence
    assert "one GPU" in sentence


def test_the_last_units_on_one_gpu_are_granted_without_a_question() -> None:
    """Exactly enough is left on one GPU: kubelet takes it by itself, which is right."""
    state = matcher(machine(15, 15), expected("p", {"gpu-mem": 4}, annotations=plan(0)))
    assert make_gpus(state.allocate(MEM, ids(state, {1: 4}))) == {1: 4}


def test_a_second_container_on_another_gpu_is_refused() -> None:
    """Kubelet took ids of another GPU by itself: the containers of a pod stay together."""
    state = matcher(machine(15, 15), expected("p", {"gpu-mem": 4}, {"gpu-mem": 3}))
    state.allocate(MEM, ids(state, {0: 4}))
    sentence = denied(state.allocate(MEM, ids(state, {1: 3})), AllocationErrorCode.SPLITS_POD)
    assert sentence == "container c1 would get GPU 1, but its pod is on GPU 0"


def test_a_pod_nobody_knows_is_placed_by_best_fit_with_compute_beside_memory() -> None:
    """A static pod is on no watch: best fit, and its compute follows its memory."""
    kubelet = Kubelet(matcher(machine(15, 8)))
    assert kubelet.matcher.prefer(kubelet.question(MEM, 3)) is None
    assert make_gpus(kubelet.take(3)) == {1: 3}
    assert make_gpus(kubelet.take(30, CORE)) == {1: 30}


def test_an_unhealthy_gpu_gives_nothing_and_is_not_chosen() -> None:
    """Ids of an unhealthy GPU are refused; a plan for it is replaced."""
    inventory = Inventory(gpus=(make_gpu(0, healthy=False), make_gpu(1)))
    state = matcher(inventory, expected("p", {"gpu-mem": 3}, annotations=plan(0)))
    sentence = denied(state.allocate(MEM, ids(state, {0: 3})), AllocationErrorCode.UNHEALTHY)
    assert sentence == "GPU 0 is unhealthy"
    other = matcher(inventory, expected("p", {"gpu-mem": 3}))
    assert make_gpus(Kubelet(other).take(3)) == {1: 3}


def test_a_gpu_that_was_removed_is_refused_by_name() -> None:
    """An id of a GPU that is gone is no GPU of this node."""
    state = matcher(machine(15))
    gone = "GPU-gone-_-3"
    assert gone in denied(state.allocate(MEM, (gone,)), AllocationErrorCode.UNKNOWN_DEVICE)


def test_whole_gpus_come_from_the_group() -> None:
    """A pod of exclusive GPUs gets exactly those of its group, in its order."""
    pod = expected("p", {"gpu": 2}, annotations={DEFAULT_NAMES.group: "3,1"})
    kubelet = Kubelet(matcher(machine(15, 15, 15, 15), pod))
    assert list(make_gpus(kubelet.take(2, GPU)).items()) == [(3, 1), (1, 1)]


def test_a_taken_gpu_of_a_group_is_replaced_and_shared_gpus_are_passed_by() -> None:
    """One GPU of the group is shared meanwhile: the lowest wholly free one takes its place."""
    pod = expected("p", {"gpu": 2}, annotations={DEFAULT_NAMES.group: "0,1"})
    state = matcher(machine(15, 15, 15), expected("s", {"gpu-mem": 1}, annotations=plan(0)), pod)
    kubelet = Kubelet(state)
    kubelet.take(1)
    assert make_gpus(kubelet.take(2, GPU)) == {1: 1, 2: 1}


@pytest.mark.parametrize("required", [(), (2,)], ids=["free choice", "kubelet requires GPU 2"])
def test_an_unknown_pod_gets_several_exclusive_gpus(required: tuple[int, ...]) -> None:
    """A static pod, or one ahead of the watch, gets what is free and promised to no other pod."""
    waiting = expected("planned", {"gpu": 1}, annotations={DEFAULT_NAMES.group: "0"})
    state = matcher(machine(8, 8, 8, 8), waiting)
    state.holdings.take(MEM, ids(state, {1: 2}), Holder("default", "x", "c0"))
    question = ids(state, dict.fromkeys(required, 1), GPU)
    assert make_gpus(Kubelet(state).take(2, GPU, question)) == {2: 1, 3: 1}


def test_an_unknown_pod_with_more_exclusive_gpus_than_are_free_is_refused() -> None:
    """The plugin refuses three of two free GPUs to a pod that the watch has yet to deliver."""
    sentence = denied(Kubelet(matcher(machine(8, 8))).take(3, GPU), AllocationErrorCode.NO_GPU_FITS)
    assert sentence == "2 of 2 GPUs are free, and the container requests 3 exclusive GPUs"


def test_a_gpu_had_whole_is_not_shared_and_a_shared_gpu_is_not_had_whole() -> None:
    """Shares and exclusive GPUs never meet on a GPU, and the sentence counts who is there."""
    whole = expected("w", {"gpu": 1}, annotations={DEFAULT_NAMES.group: "0"})
    state = matcher(machine(15, 15), whole)
    Kubelet(state).take(1, GPU)
    sentence = denied(state.allocate(MEM, ids(state, {0: 2})), AllocationErrorCode.TAKEN_WHOLE)
    assert sentence == "GPU 0 is used exclusively by another pod"
    shares = [expected(name, {"gpu-mem": 1}) for name in ("s", "t")]
    for pods, count in ((shares[:1], "one other pod"), (shares, "2 other pods")):
        other = matcher(machine(15), *pods)
        kubelet = Kubelet(other)
        for _ in pods:
            kubelet.take(1)
        answer = other.allocate(GPU, ids(other, {0: 1}, GPU))
        sentence = denied(answer, AllocationErrorCode.SHARED_GPU)
        assert sentence == f"GPU 0 is shared by {count}"


def test_a_refusal_names_other_pods_for_the_log_of_the_node_only() -> None:
    """Kubelet shows the sentence to the pod's owner, who may be another tenant than theirs."""
    state = matcher(machine(15), expected("secret", {"gpu-mem": 1}))
    Kubelet(state).take(1)
    state.allocate(MEM, ids(state, {0: 2})[1:])  # of a pod that the watch has yet to deliver
    answer = state.allocate(GPU, ids(state, {0: 1}, GPU))
    assert "secret" not in denied(answer, AllocationErrorCode.SHARED_GPU)
    assert isinstance(answer, AllocationError)
    assert answer.pods == ("default/secret",)


TOO_LARGE = {"gpu-mem": 3, "gpu-core.percentage": 150}
"""Kubelet takes the resources of a container in any order, and its calls end where it has too few.
A node may have more of it on several GPUs: then kubelet calls, and the plugin refuses."""


def test_a_pod_that_no_node_can_run_takes_no_call_of_another_pod() -> None:
    """Kubelet rejected it unseen, which the watch has yet to deliver: the call is for b."""
    hostile = expected("a", TOO_LARGE, annotations={wire_names.MEMORY_LIMIT: "9"})
    planned = expected("b", {"gpu-mem": 3}, annotations=plan(1))
    kubelet = Kubelet(matcher(machine(15, 15), hostile, planned))
    assert make_gpus(kubelet.take(3)) == {1: 3}


def test_a_pod_that_no_node_can_run_is_not_waited_for_and_refused_at_what_is_too_much() -> None:
    """A wait for another pod of this amount would hold up kubelet at each such pod."""
    state = matcher(machine(15, 15), expected("a", TOO_LARGE))
    kubelet = Kubelet(state)
    assert isinstance(state.prefer(kubelet.question(MEM, 3)), tuple)
    assert make_gpus(kubelet.take(3)) == {0: 3}
    assert "150" in denied(kubelet.take(150, CORE), AllocationErrorCode.NO_GPU_FITS)


def test_a_pod_gets_devices_where_its_call_was_taken_by_one_that_no_node_can_run() -> None:
    """Kubelet called for a before it rejected it: b is not refused for what a demands."""
    hostile = expected("a", TOO_LARGE, annotations={wire_names.MEMORY_LIMIT: "9"})
    planned = expected("b", {"gpu-mem": 3}, annotations=plan(1))
    kubelet = Kubelet(matcher(machine(15, 15), hostile, planned))
    kubelet.take(3)
    kubelet.used[MEM].clear()  # a was rejected
    assert isinstance(kubelet.take(3), Granted)


def test_a_pod_that_was_refused_at_allocate_is_not_meant_again() -> None:
    """Kubelet took the last units without a question, and goes on with the next pod."""
    demand = {wire_names.ISOLATION: "mps"}
    pods = expected("refused", {"gpu-mem": 2}, annotations=demand), expected("b", {"gpu-mem": 2})
    state = matcher(machine(15), *pods)
    mine = ids(state, {0: 2})
    denied(state.allocate(MEM, mine), AllocationErrorCode.ISOLATION_MODE_MISSING)
    granted = state.allocate(MEM, mine)
    assert isinstance(granted, Granted)
    assert granted.turn is not None
    assert granted.turn.pod.name == "b"


def test_a_mig_instance_serves_one_pod_at_a_time() -> None:
    """An instance is a slice already: a second pod is sent elsewhere, the same pod may go on."""
    inventory = Inventory(gpus=(make_gpu(0, 10, mig=True), make_gpu(1, 15)))
    first = expected("a", {"gpu-mem": 2}, {"gpu-mem": 3}, annotations=plan(0))
    second = expected("b", {"gpu-mem": 1}, annotations=plan(0))
    kubelet = Kubelet(matcher(inventory, first, second))
    assert make_gpus(kubelet.take(2)) == {0: 2}
    assert make_gpus(kubelet.take(3)) == {0: 3}
    assert make_gpus(kubelet.take(1)) == {1: 1}


def test_what_a_pod_held_is_free_again_when_kubelet_no_longer_lists_it() -> None:
    """Kubelet's account releases: an exclusive GPU without a pod can be shared again."""
    state = matcher(machine(15), expected("w", {"gpu": 1}))
    Kubelet(state).take(1, GPU)
    state.sync_from_kubelet([], requested_at=state.holdings.turn)
    assert make_gpus(state.allocate(MEM, ids(state, {0: 2}))) == {0: 2}


def test_devices_that_kubelet_offers_twice_are_taken_last() -> None:
    """A list of its allocations during Allocate makes kubelet forget that they are in use."""
    first = expected("a", {"gpu-mem": 3}, annotations=plan(0))
    second = expected("b", {"gpu-mem": 13}, annotations=plan(0))
    kubelet = Kubelet(matcher(machine(15), first, second))
    held = kubelet.take(3).ids
    kubelet.used[MEM].clear()
    assert len(set(kubelet.take(13).ids) & set(held)) == 1


def test_the_gpus_of_a_pod_are_known_from_kubelets_account() -> None:
    """Kubelet's account names the pods of a GPU after a restart of the plugin."""
    state = matcher(machine(15, 15))
    held = Held("default", "p", {"c0": {MEM: ids(state, {1: 3})}})
    state.sync_from_kubelet([held], requested_at=0)
    assert state.gpus_held("default", "p") == {1}
    state.holdings.release("default", "p")
    assert state.gpus_held("default", "p") == frozenset()


@pytest.mark.parametrize("amounts", [(5, 5, 5), (8, 4, 3)])
def test_a_full_gpu_is_filled_to_its_last_unit(amounts: tuple[int, ...]) -> None:
    """Nothing is lost to rounding or order: pods that add up to a GPU fit on it."""
    pods = [expected(f"p{i}", {"gpu-mem": n}, annotations=plan(0)) for i, n in enumerate(amounts)]
    kubelet = Kubelet(matcher(machine(15), *pods))
    assert [make_gpus(kubelet.take(n)) for n in amounts] == [{0: n} for n in amounts]


def test_a_container_gets_another_gpu_of_its_pod_where_a_sidecar_has_its_own() -> None:
    """Kubelet gives the sidecar the GPU that the init container before it had."""
    ask, group = {"gpu": 1}, {DEFAULT_NAMES.group: "0,2"}
    pod = expected("p", ask, inits=[ask], sidecars=[ask], annotations=group)
    kubelet = Kubelet(matcher(machine(15, 15, 15), pod))
    init = kubelet.take(1, GPU)
    assert make_gpus(kubelet.matcher.allocate(GPU, init.ids)) == {0: 1}
    assert make_gpus(kubelet.take(1, GPU)) == {2: 1}


ALONE = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}


def test_a_share_that_requires_a_whole_gpu_gets_an_empty_one() -> None:
    """Also where its author set the node, so that no extender chose its GPU."""
    pods = [expected("p", {"gpu-mem": 3}), expected("alone", {"gpu-mem": 4}, labels=ALONE)]
    kubelet = Kubelet(matcher(machine(15, 15), *pods))
    assert make_gpus(kubelet.take(3)) == {0: 3}
    assert make_gpus(kubelet.take(4)) == {1: 4}


def test_a_share_that_requires_a_whole_gpu_is_refused_where_none_is_empty() -> None:
    """The pod would have a neighbour; kubelet's own choice of devices is checked as well."""
    state = matcher(machine(15), expected("p", {"gpu-mem": 3}))
    Kubelet(state).take(3)
    state.see(expected("alone", {"gpu-mem": 4}, labels=ALONE))
    answer = state.allocate(MEM, ids(state, {0: 15})[3:7])
    assert denied(answer, AllocationErrorCode.SHARED_GPU) == "GPU 0 is shared by one other pod"


@pytest.mark.parametrize("waiting", [True, False])
def test_no_pod_gets_a_part_of_a_gpu_that_a_share_has_alone(waiting: bool) -> None:
    """As long as that pod lives; afterwards others can have the GPU."""
    alone = expected("alone", {"gpu-mem": 4, "gpu-core.percentage": 10}, labels=ALONE)
    state = matcher(machine(15), alone)
    kubelet = Kubelet(state)
    assert make_gpus(kubelet.take(4)) == {0: 4}
    assert make_gpus(kubelet.take(10, CORE)) == {0: 10}
    state.see(msgspec.structs.replace(alone, waiting=waiting))
    state.see(expected("p", {"gpu-mem": 3}))
    assert "GPU 0 has 0 of 15 free" in denied(kubelet.take(3), AllocationErrorCode.NO_GPU_FITS)
    state.queue.kubelet_restarted()
    state.release("default", "alone")
    assert make_gpus(kubelet.take(3)) == {0: 3}


def test_a_share_recorded_as_not_alone_keeps_its_neighbours() -> None:
    """The record of the bind counts: a label that is added later takes no GPU from others."""
    recorded = plan(0) | {wire_names.EXCLUSIVE: "false"}
    late = expected("late", {"gpu-mem": 4}, labels=ALONE, annotations=recorded)
    kubelet = Kubelet(matcher(machine(15), late, expected("p", {"gpu-mem": 3})))
    assert make_gpus(kubelet.take(4)) == {0: 4}
    assert make_gpus(kubelet.take(3)) == {0: 3}


def test_best_fit_leaves_the_gpu_that_a_waiting_pod_is_to_have_alone() -> None:
    """A pod that bypassed the scheduler takes another GPU, with or without the label itself."""
    waiting = expected("planned", {"gpu-mem": 6}, labels=ALONE, annotations=plan(0))
    stray = expected("stray", {"gpu-mem": 3})
    kubelet = Kubelet(matcher(machine(15, 15), waiting, stray))
    assert make_gpus(kubelet.take(3)) == {1: 3}
    shared = expected("planned", {"gpu-mem": 6}, annotations=plan(0))
    alone = expected("stray", {"gpu-mem": 3}, labels=ALONE)
    kubelet = Kubelet(matcher(machine(15, 15), shared, alone))
    assert make_gpus(kubelet.take(3)) == {1: 3}
