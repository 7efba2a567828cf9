"""What the pods of each node request: after any changes the same as from a fresh list."""

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
from corebuilders import NAMES, ledger, legacy_node
from corebuilders import pod as core_pod
from hypothesis import given

from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.scheduling.candidates import candidates_of
from gpucore.steps import complete
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import KEPT_AMOUNTS, pod_requests
from gpucore.wire.pod.spec import Pod, decode_pod

NODES = ("a", "b")


def requesting(name: str, node: str, cpu: str, *, phase: str = "Running") -> Pod:
    """A pod that requests cpu."""
    found = core_pod(name, node=node, phase=phase)
    [container] = found.containers
    wants = msgspec.structs.replace(container, requests={"cpu": cpu})
    return msgspec.structs.replace(found, containers=(wants,))


pods = st.builds(
    requesting,
    st.sampled_from(("p", "q", "r")),
    st.sampled_from(("", *NODES)),
    st.sampled_from(("1", "500m")),
    phase=st.sampled_from(("Running", "Succeeded")),
)


@given(st.lists(st.one_of(pods, pods, st.sampled_from(("uid-p", "uid-q")))))
def test_changes_end_in_what_a_list_gives(changes: list[Pod | str]) -> None:
    """A pod may be bound, moved by a new object of its UID, ended or deleted, in any order."""
    followed, living = CandidateNodes(NAMES), dict[str, Pod]()
    for change in changes:
        if isinstance(change, str):
            followed.pod_gone(PodUid(change))
            living.pop(change, None)
        elif change.node or change.uid not in living or not living[change.uid].node:
            followed.pod_changed(change)
            living[change.uid] = change
    listed = CandidateNodes(NAMES, pods=living.values())
    assert dict(followed.counted()) == dict(listed.counted())


def test_a_list_replaces_everything() -> None:
    """Pods that are missing from a new list hold nothing any more."""
    found = CandidateNodes(NAMES, pods=[requesting("p", "a", "1")])
    found.relist_pods([requesting("q", "b", "500m")])
    assert {uid: (one.node, one.requests) for uid, one in found.counted()} == {
        "uid-q": ("b", (("cpu", 500),))
    }


def test_an_amount_that_is_none_counts_as_nothing() -> None:
    """A pod that no API server accepts keeps its place in the number of pods, and no more."""
    found = CandidateNodes(NAMES, pods=[requesting("p", "a", "much")])
    assert [one.requests for _, one in found.counted()] == [()]


def test_candidates_are_by_name_and_may_be_copies() -> None:
    """Copies stay as they are when the ledger changes; requests of pods are summed by node."""
    book = ledger(legacy_node("b", 15, 1), legacy_node("a", 15, 1))
    bound = CandidateNodes(
        NAMES, book.node_objects().values(), [requesting(name, "a", "2") for name in "pq"]
    )
    copies = complete(candidates_of(book, bound, copies=True))
    book.pod_changed(core_pod("new", 4, node="a", annotations={NAMES.mem_idx: "0"}))
    bound.pod_changed(requesting("r", "a", "1"))
    assert list(copies.nodes) == ["a", "b"]
    assert dict(copies.requests) == {"uid-p": (("cpu", 2000),), "uid-q": (("cpu", 2000),)}
    assert (copies.nodes[NodeName("a")].requested, copies.nodes[NodeName("a")].pods) == (
        {"cpu": 4000},
        2,
    )
    assert copies.node_infos[NodeName("a")].used_units == 0
    assert complete(candidates_of(book, bound, copies=False)).node_infos["a"].used_units == 4


def decoded(spec: dict[str, Any]) -> Pod:
    """A pod of the API with this specification."""
    return decode_pod(json.dumps({"metadata": {}, "spec": spec}).encode())


def test_requests_of_the_pod_replace_those_of_its_containers() -> None:
    """Resources of the pod as a whole count instead; overhead of its runtime class is added."""
    own = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec = {
        "containers": [own, own],
        "resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "1Gi"}},
        "overhead": {"cpu": "250m"},
    }
    assert dict(pod_requests(decoded(spec), NAMES)) == {"cpu": 1750, "memory": 1 << 30}


def test_requests_of_odd_pods_are_not_kept() -> None:
    """Equal requests are one value, but for pods of so many resources that they fill a memory."""
    few, many = ({f"e.com/r{n}": "1" for n in range(count)} for count in (2, KEPT_AMOUNTS // 5))
    for wants, same in ((few, True), (many, False)):
        spec = {"containers": [{"resources": {"requests": wants}}]}
        first, second = (pod_requests(decoded(spec), NAMES) for _ in range(2))
        assert first == second
        assert (first is second) is same


def test_requests_as_numbers_are_read() -> None:
    """A file made by hand may write ``cpu: 2``."""
    spec = {"containers": [{"resources": {"requests": {"cpu": 2}}}]}
    assert pod_requests(decoded(spec), NAMES) == (("cpu", 2000),)
