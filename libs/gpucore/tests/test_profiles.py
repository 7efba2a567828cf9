"""Which profile of one kube-scheduler a new pod gets."""

import pytest
from corebuilders import ledger, make_gpus, share_node

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Inventory
from gpucore.scheduling.cluster_policy import (
    MOST_REVIEWED,
    BurstSwitch,
    ExpectedProfile,
    ReviewedPods,
    SchedulerProfiles,
    burst_pays,
    expected_profile,
    profiles_for,
    same_scheduler,
    without_burst,
)

PROFILES = SchedulerProfiles("exact", "exact-burst", 32)


def node_infos(count: int) -> list[NodeInfo]:
    """The state of so many empty nodes."""
    names = [f"n{number:03}" for number in range(count)]
    return list(ledger(*(share_node(name, make_gpus(1)) for name in names)).nodes().values())


def test_a_burst_begins_above_the_number_and_ends_at_a_quarter_of_it() -> None:
    """Between the two numbers the profile stays what it was."""
    switch = BurstSwitch(PROFILES)
    lengths = [0, 32, 33, 32, 9, 8, 9, 32, 40, 0]
    assert [switch.on(queued) for queued in lengths] == [
        *(False, False, True, True, True),
        *(False, False, False, True, False),
    ]


def test_a_reviewed_pod_counts_until_the_watch_shows_one() -> None:
    """Pods that came before the first review count for none of them."""
    reviewed = ReviewedPods()
    assert reviewed.count(shown=7, now=0.0) == 0
    for now in (0.0, 0.1, 0.2):
        reviewed.add(now)
    assert reviewed.count(shown=7, now=0.3) == 3
    assert reviewed.count(shown=9, now=0.3) == 1
    assert reviewed.count(shown=20, now=0.3) == 0
    reviewed.add(0.4)
    assert reviewed.count(shown=20, now=0.9) == 1
    assert reviewed.count(shown=20, now=1.0) == 0


def test_reviewed_pods_are_bounded() -> None:
    """Also while nothing counts them, as where only pods of gangs are created."""
    reviewed = ReviewedPods()
    for _ in range(MOST_REVIEWED + 5):
        reviewed.add(0.0)
    assert reviewed.count(shown=0, now=0.0) == MOST_REVIEWED


@pytest.mark.parametrize(
    "profiles",
    [
        SchedulerProfiles("exact"),
        SchedulerProfiles("", "exact-burst", 32),
        SchedulerProfiles("exact", "exact-burst", 0),
    ],
)
def test_a_scheduler_without_a_burst_profile_has_no_bursts(profiles: SchedulerProfiles) -> None:
    """Without the second name, without the webhook's own, and where the number is 0."""
    assert not BurstSwitch(profiles).on(100_000)
    assert not expected_profile(profiles, "", gang=False, queued=100_000).burst


@pytest.mark.parametrize(
    ("named", "gang", "queued", "before", "expected"),
    [
        ("", False, 0, 0, ExpectedProfile("exact")),
        ("default-scheduler", False, 8, 24, ExpectedProfile("exact", queued=32)),
        ("", False, 8, 25, ExpectedProfile("exact-burst", burst=True, queued=33)),
        ("", False, 9, 0, ExpectedProfile("exact", doubtful=True, queued=9)),
        ("", True, 100, 0, ExpectedProfile("exact")),
        ("exact", False, 100, 0, ExpectedProfile("exact")),
        ("exact-burst", False, 0, 0, ExpectedProfile("exact-burst", burst=True)),
        ("volcano", False, 100, 0, ExpectedProfile("volcano")),
    ],
)
def test_the_expected_profile_follows_from_the_queue_and_the_name(
    named: str, *, gang: bool, queued: int, before: int, expected: ExpectedProfile
) -> None:
    """A pod keeps the name it has, a gang is exact, and between the numbers both are possible."""
    found = expected_profile(PROFILES, named, gang=gang, queued=queued, before=before)
    assert found == expected


@pytest.mark.parametrize(("nodes", "pays"), [(0, False), (100, False), (101, True)])
def test_a_burst_profile_pays_with_more_nodes_than_it_compares(nodes: int, *, pays: bool) -> None:
    """With a hundred nodes kube-scheduler compares all of them in any profile."""
    found = node_infos(nodes)
    assert burst_pays(found) == pays
    assert profiles_for(PROFILES, found).switches == pays


def test_nodes_without_gpus_do_not_count() -> None:
    """kube-scheduler's own filters remove them before the limit counts."""
    empty = [share_node(f"n{number:03}", Inventory(gpus=())) for number in range(200)]
    assert not burst_pays(ledger(*empty).nodes().values())


def test_people_are_advised_to_use_the_exact_profile() -> None:
    """The burst profile's name is left out, whatever else the names are."""
    assert without_burst(["b-burst", "b", "a", "c-burst"]) == ["a", "b", "c-burst"]
    assert same_scheduler("b", "b-burst")
    assert not same_scheduler("b", "c")
