"""The mix is learned from the pods that came lately, and no small tenant moves it."""

import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.model import FitError, Placement
from gpucore.scheduling.host_rooms import MOST_SELECTORS
from gpucore.scheduling.policy import POLICIES, place
from gpucore.simulate.hosts import Host
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.steps import complete
from gpucore.units import PodUid
from gpucore.workload.arrivals import HALF_LIFE_SECONDS, Arrival, NodeLabels
from gpucore.workload.history import (
    FEWEST_PODS,
    LearnedMix,
    PodHistory,
    deciding,
    difference,
)
from gpucore.workload.known_selectors import MOST_OF_ALL, MOST_OF_ONE
from gpucore.workload.pod_mix import PodKind, PodMix

SMALL, LARGE = PodKind(mem=2), PodKind(gpus=4)
NOW = 1e9


def any_model(_: NodeLabels) -> tuple[str, ...]:
    """Every selector allows all models."""
    return ()


def history(*arrivals: Arrival, limit: int = 1000) -> PodHistory:
    """These pods, in order."""
    found = PodHistory(limit)
    for number, arrival in enumerate(arrivals):
        found.note(PodUid(f"{number}"), arrival)
    return found


def weights(found: PodHistory) -> dict[PodKind, float]:
    """By kind, as they add up to 1."""
    learned = complete(found.weights(any_model))
    total = sum(learned.values())
    return {kind: weight / total for kind, weight in learned.items()}


def of(kind: PodKind, count: int, *, namespace: str = "a", days: float = 0.0) -> list[Arrival]:
    """Pods of one kind and age."""
    return [Arrival(namespace, kind, created=NOW - days * 86400)] * count


def test_nothing_is_learned_from_few_pods() -> None:
    """Until there are enough pods there is no mix, so the guess stands."""
    assert complete(history(*of(SMALL, FEWEST_PODS - 1)).weights(any_model)) == {}
    assert weights(history(*of(SMALL, FEWEST_PODS))) == {SMALL: 1.0}


def test_old_pods_count_less() -> None:
    """Half where it is a half-life older than the newest; nothing where it has no time."""
    days = HALF_LIFE_SECONDS / 86400
    found = history(*of(SMALL, 20, days=days), *of(LARGE, 20), Arrival("a", PodKind(mem=9)))
    learned = weights(found)
    assert learned[PodKind(mem=9)] == 0.0
    assert learned == pytest.approx({SMALL: 1 / 3, LARGE: 2 / 3, PodKind(mem=9): 0.0})


def test_a_pod_counts_once_and_the_oldest_are_dropped() -> None:
    """Events of a known pod change nothing; the number of pods is bounded."""
    found = history(*of(SMALL, 20), limit=30)
    found.note(PodUid("3"), Arrival("a", LARGE))
    assert (len(found), PodUid("3") in found) == (20, True)
    for number in range(100, 125):
        found.note(PodUid(f"{number}"), Arrival("a", LARGE, created=NOW))
    assert (len(found), PodUid("3") in found) == (30, False)
    assert weights(found) == {SMALL: pytest.approx(5 / 30), LARGE: pytest.approx(25 / 30)}


def test_a_full_history_keeps_the_newer_pods() -> None:
    """Events of a pod that is older than what is kept do not push out newer ones."""
    found = history(*of(SMALL, 30), limit=30)
    found.note(PodUid("old"), Arrival("a", LARGE, created=NOW - 86400))
    assert PodUid("old") not in found
    assert weights(found) == {SMALL: 1.0}


def test_a_full_history_keeps_the_newest_pods_in_whatever_order_they_come() -> None:
    """A list has the pods by name, not by time."""
    ages = random.Random(7).sample(range(100), 100)
    found = history(*(Arrival("a", SMALL, created=NOW - age) for age in ages), limit=30)
    kept = {age for number, age in enumerate(ages) if PodUid(f"{number}") in found}
    assert kept == set(range(30))


def test_a_pod_is_missing_until_it_is_counted_here_or_was_saved() -> None:
    """So that nothing is worked out for a pod that would not be counted."""
    found = history(*of(SMALL, 30), limit=30)
    assert not found.misses(PodUid("3"), NOW)
    assert not found.misses(PodUid("new"), NOW - 1)
    assert found.misses(PodUid("new"), NOW + 1)
    again = PodHistory()
    again.restore(complete(history(*of(SMALL, 30, days=1), *of(SMALL, 1)).saved()))
    assert not again.misses(PodUid("3"), NOW - 86400)
    assert again.misses(PodUid("new"), NOW)


def test_models_follow_from_the_selector() -> None:
    """The models of the nodes that a pod may run on are part of its kind."""
    on_t4 = NodeLabels((("gpu", "t4"),))
    found = history(*of(SMALL, 20), *[Arrival("a", SMALL, on_t4, NOW)] * 20)
    learned = complete(found.weights(lambda one: ("T4",) if one == on_t4 else ()))
    assert learned == {SMALL: 20.0, PodKind(mem=2, models=("T4",)): 20.0}


def on(value: str) -> NodeLabels:
    """A selector of one label."""
    return NodeLabels((("k", value),))


def selecting(namespace: str, *values: str, days: float = 0.0) -> list[Arrival]:
    """A pod for each of these selectors."""
    return [Arrival(namespace, SMALL, on(each), NOW - days * 86400) for each in values]


def test_different_selectors_are_bounded() -> None:
    """Of a tenant who invents selectors, the further ones count as none; others keep theirs."""
    invented = selecting("a", *(f"{n}" for n in range(MOST_OF_ONE + 9)))
    found = history(*invented, *selecting("b", "z"), limit=10**6)
    selectors = complete(found.selectors())
    assert len(selectors) == MOST_OF_ONE
    many = [pod for n in range(40) for pod in selecting(f"n{n}", *(f"{n}-{m}" for m in range(200)))]
    assert len(complete(history(*many, limit=10**6).selectors())) == MOST_OF_ALL


def test_a_selector_goes_with_its_last_pod() -> None:
    """Then another one is kept: a namespace that changed its labels is not stuck with the old."""
    found = history(*selecting("a", *(f"old{n}" for n in range(MOST_OF_ONE))), limit=MOST_OF_ONE)
    for number in range(MOST_OF_ALL + MOST_OF_ONE):
        found.note(PodUid(f"new{number}"), *selecting("a", f"new{number}"))
    kept = [one.labels[0][1] for one in complete(found.selectors())]
    assert len(kept) == MOST_OF_ONE
    assert {one[:3] for one in kept} == {"new"}


def test_selectors_come_by_the_weight_of_their_pods() -> None:
    """Old pods count less, and the pods of any node have none."""
    pods = selecting("a", "old", "old", "old", days=9) + selecting("a", "one", "two", "two")
    assert complete(history(*pods, *of(SMALL, 9)).selectors()) == [on("two"), on("one"), on("old")]


def test_small_namespaces_have_no_say_about_selectors_either() -> None:
    """Their pods do not count for the mix."""
    found = history(*selecting("a", *["x"] * 91), *selecting("odd", *["y"] * 9))
    assert complete(found.selectors()) == [on("x")]


@given(
    st.lists(st.lists(st.sampled_from("stuvwxyz"), min_size=20, max_size=60), max_size=7),
    st.integers(0, 300),
    st.integers(-1, 1),
)
def test_no_tenant_keeps_selectors_of_others_out(
    namespaces: list[list[str]], invented: int, age: int
) -> None:
    """Of eight namespaces, each with eight selectors, those of all others are compared."""
    flood = [f"a{number}" for number in range(invented)]
    others = {f"n{number}": values for number, values in enumerate(namespaces)}
    pods = [pod for name, values in others.items() for pod in selecting(name, *values, days=1)]
    tenant = selecting("tenant", *flood, days=1 + age)
    learned = complete(history(*tenant, *pods, limit=10**6).selectors())
    weight = 2.0 ** (-age / 3) * invented
    counts = {name: float(len(values)) for name, values in others.items()} | {"tenant": weight}
    expected = {on(each) for name in deciding(counts) for each in others.get(name, ())}
    assert expected <= set(learned[:MOST_SELECTORS])


def test_small_namespaces_do_not_decide_beside_large_ones() -> None:
    """With less than a tenth of the pods a namespace does not count; if all are small, all do."""
    assert deciding({"a": 60, "b": 31, "c": 9}) == ["a", "b"]
    assert deciding({f"{n}": 5 for n in range(20)}) == [f"{n}" for n in range(20)]
    found = history(*of(SMALL, 91), *of(LARGE, 9, namespace="odd"))
    assert weights(found) == {SMALL: 1.0}


def test_the_difference_of_mixes_is_the_weight_on_other_kinds() -> None:
    """Equal mixes differ by nothing, others by the part that would have to move."""
    assert difference({SMALL: 1, LARGE: 1}, {SMALL: 50, LARGE: 50}) == 0.0
    assert difference({SMALL: 1, LARGE: 1}, {SMALL: 1}) == 0.5
    assert difference({SMALL: 1}, {LARGE: 3}) == 1.0
    assert difference({}, {SMALL: 1}) == 1.0
    assert difference({}, {}) == 0.0


def test_a_mix_stays_until_another_differs() -> None:
    """Small changes keep the mix in use; a large one replaces it."""
    learned = LearnedMix(history(*of(SMALL, 80), *of(LARGE, 20)))
    assert learned.mix is None
    assert complete(learned.learn(any_model))
    first = learned.mix
    learned.history.note(PodUid("x"), Arrival("a", LARGE, created=NOW))
    assert not complete(learned.learn(any_model))
    assert learned.mix is first
    for number in range(60):
        learned.history.note(PodUid(f"x{number}"), Arrival("a", LARGE, created=NOW))
    assert complete(learned.learn(any_model))
    assert learned.mix is not first


def test_a_restarted_process_learns_the_same_from_the_same_pods() -> None:
    """The order in which pods are listed does not matter."""
    arrivals = [*of(SMALL, 30, days=2), *of(LARGE, 25, namespace="b", days=1)]
    other = arrivals[::-1]
    assert weights(history(*arrivals)) == pytest.approx(weights(history(*other)))


# No small tenant moves placements.

USUAL = [TracePod("p", cpu, 1024, *gpus) for cpu in (1000, 8000) for gpus in ((1, 300), (2, 1000))]
ODD = [TracePod("p", 61_000, 1, 1, 777), TracePod("p", 1, 300_000, 3, 1000)]
NODES = [TraceNode(f"n{number}", 64_000, 512_000, 2 + number % 3 * 3) for number in range(12)]


def choices(mix: PodMix, before: Sequence[TracePod], pods: Iterable[TracePod]) -> list[object]:
    """Where each pod would go on a cluster that others fill already."""
    hosts, policy = [Host(node, mix) for node in NODES], POLICIES["fragmentation"]
    for number, pod in enumerate(before):
        host = hosts[number % len(hosts)]
        placement = place(host.node_info, pod.pod_request(), "binpack")
        if host.runs(pod) and isinstance(placement, Placement):
            host.take(pod, placement)
    return [_best(hosts, pod, policy.name) for pod in pods]


def _best(hosts: Iterable[Host], pod: TracePod, policy: str) -> Placement | None:
    found: list[tuple[tuple[float, ...], Placement]] = []
    request = pod.pod_request()
    for host in hosts:
        placement = place(host.node_info, request, policy)
        if host.runs(pod) and not isinstance(placement, FitError):
            found.append((POLICIES[policy].rate(host.node_info, request, placement), placement))
    return max(found, key=lambda one: one[0], default=(None, None))[1]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(1, 15),
    st.floats(0.0, 0.099),
    st.sampled_from([ODD, ODD[:1], USUAL[:1]]),
)
def test_no_tenant_with_a_tenth_of_the_pods_moves_placements(
    seed: int, namespaces: int, part: float, flood: list[TracePod]
) -> None:
    """Of all placements at most one in twenty is another once the tenant has come."""
    chance = random.Random(seed)
    shares = [chance.random() + 0.05 for _ in USUAL]
    learned = LearnedMix()
    for number in range(300):
        namespace = f"n{chance.randrange(namespaces)}"
        kind = chance.choices(USUAL, shares)[0].kind()
        learned.history.note(PodUid(f"u{number}"), Arrival(namespace, kind, created=NOW))
    complete(learned.learn(any_model))
    filled, asked = chance.choices(USUAL, k=chance.randrange(60)), USUAL * 5
    assert learned.mix is not None
    before = choices(learned.mix, filled, asked)
    for number in range(int(300 * part / (1 - part))):
        kind = chance.choice(flood).kind()
        learned.history.note(PodUid(f"t{number}"), Arrival("tenant", kind, created=NOW))
    complete(learned.learn(any_model))
    after = choices(learned.mix, filled, asked)
    moved = sum(one != other for one, other in zip(before, after, strict=True))
    assert moved <= 0.05 * len(asked)
