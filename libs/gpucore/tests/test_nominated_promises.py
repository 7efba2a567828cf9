"""What-if and explain beside nominated pods: nothing is promised that filter would refuse."""

import re
from random import Random

import msgspec
import pytest
from corebuilders import NAMES, assumed, ledger, make_gpus, on_node, pod, pod_request, share_node

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.pod_states import Cluster, Explanation, PodFacts
from gpucore.explain.pods import explain_pod
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model import FitError, PodRequest
from gpucore.scheduling.candidates import Candidates, candidates_of
from gpucore.scheduling.fit import fit
from gpucore.scheduling.nominated import reserved_for_nominated
from gpucore.scheduling.pending_pods import Nominations
from gpucore.simulate.whatif import SimulatedCluster, WhatIfPod
from gpucore.steps import complete
from gpucore.units import NodeName, PodUid
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

SEEDS = range(150)
PRIORITIES = (0, 0, 5)


class Situation(msgspec.Struct):
    """Nodes with pods on them, pods that are nominated to them, and one that waits."""

    book: Ledger
    nominations: Nominations
    waiting: Pod

    @property
    def candidates(self) -> Candidates:
        """The nodes as they are now."""
        known = CandidateNodes(NAMES, self.book.node_objects().values())
        return complete(candidates_of(self.book, known, copies=False))

    def explained(self) -> Explanation:
        """Why the pod waits."""
        facts = PodFacts(self.waiting, pod_request(self.waiting))
        cluster = Cluster(self.book, self.candidates, nominations=self.nominations)
        return complete(explain_pod(facts, cluster))

    def filtered(self, name: str, request: PodRequest | None = None) -> FitError | None:
        """What filter decides on a node."""
        node_info = self.book.node(NodeName(name))
        assert node_info is not None
        found = request or pod_request(self.waiting)
        return filter_refusal(self.nominations, node_info, self.waiting, found)


def filter_refusal(
    nominations: Nominations, node_info: NodeInfo, pod: Pod, request: PodRequest
) -> FitError | None:
    """What filter decides."""
    return fit(node_info, request) or reserved_for_nominated(nominations, node_info, pod, request)


def ready_node(name: str, *gpus: int) -> Node:
    """A node that offers shares and exclusive GPUs."""
    return msgspec.structs.replace(share_node(name, make_gpus(*gpus), whole=True), ready=True)


def random_pod(random: Random, name: str) -> Pod:
    """A pod with a share or exclusive GPUs."""
    gpus = random.choice((0, 0, 0, 1, 2))
    found = pod(name, gpus=gpus) if gpus else pod(name, random.choice((2, 4, 8, 12, 16)))
    return msgspec.structs.replace(found, priority=random.choice(PRIORITIES))


def situation(seed: int) -> Situation:
    """A random one; a nominated pod may wait for others to end, as after a preemption."""
    random = Random(seed)
    nodes = ["a", "b", "c"][: random.randint(1, 3)]
    sizes = {name: [random.choice((8, 16)) for _ in range(random.randint(1, 3))] for name in nodes}
    book = ledger(*(ready_node(name, *gpus) for name, gpus in sizes.items()))
    for number in range(random.randint(0, 9)):
        held, name = random_pod(random, f"held-{number}"), random.choice(nodes)
        if not isinstance(on_node(book, name, held), FitError):
            assumed(book, name, held)
    nominations = Nominations()
    for number in range(random.randint(1, 3)):
        one = random_pod(random, f"nominated-{number}")
        one = msgspec.structs.replace(one, nominated=NodeName(random.choice(nodes)))
        nominations.note(one, pod_request(one))
    return Situation(book, nominations, random_pod(random, "waits"))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_if_refuses_the_nodes_that_filter_refuses(seed: int) -> None:
    """Also once pods of the same question are there; explain refuses the same nodes."""
    found, random = situation(seed), Random(seed)
    assert set(found.explained().fits) == {n for n in found.book.nodes() if not found.filtered(n)}
    simulated = SimulatedCluster(found.book.nodes(), nominations=found.nominations)
    for number in range(4):
        asked = random_pod(random, f"new-{number}")
        request = pod_request(asked)
        expected = {
            name: refusal
            for name, node_info in simulated.node_infos.items()
            if (refusal := filter_refusal(found.nominations, node_info, asked, request))
        }
        fitting = len(simulated.node_infos) - len(expected)
        outcome = simulated.grant(WhatIfPod(asked.name, request, priority=asked.priority))
        assert outcome.fitting == fitting
        if fitting == 0:
            assert outcome.refusals == expected


def test_what_if_names_the_gpu_that_bind_takes_beside_a_nominated_pod() -> None:
    """The nominated pod waits for GPU 0, so bind places another pod on GPU 1."""
    book, nominations = ledger(ready_node("a", 16, 16)), Nominations()
    waits = msgspec.structs.replace(pod("waits", 8), nominated=NodeName("a"))
    nominations.note(waits, pod_request(waits))
    simulated = SimulatedCluster(book.nodes(), nominations=nominations)
    lower = simulated.branch().grant(WhatIfPod("new", pod_request(pod("new", 10))))
    assert lower.placement is not None
    assert lower.placement.mem == {1: 10}
    above = simulated.grant(WhatIfPod("new", pod_request(pod("new", 10)), priority=1))
    assert above.placement is not None
    assert above.placement.mem == {0: 10}


def test_a_branch_of_a_simulation_places_pods_beside_nominated_ones() -> None:
    """Also on a node that changed in the branch, where no earlier result counts."""
    book, nominations = ledger(ready_node("a", 16)), Nominations()
    waits = msgspec.structs.replace(pod("waits", 8), nominated=NodeName("a"))
    nominations.note(waits, pod_request(waits))
    branch = SimulatedCluster(book.nodes(), nominations=nominations).branch()
    pods = [WhatIfPod(name, pod_request(pod(name, mem))) for name, mem in (("s", 4), ("l", 8))]
    assert [branch.grant(each).placement is not None for each in pods] == [True, False]


@pytest.mark.parametrize("seed", SEEDS)
def test_filter_keeps_what_explain_promises(seed: int) -> None:
    """Once the named pods have ended, or with the smaller request, filter admits the pod."""
    found = situation(seed)
    for words in found.explained().helps:
        if ends := re.match(r"it fits (?:GPU \d+ of )?(\w+) once (.*) ends?", words):
            later = situation(seed)
            for name in re.findall(r"default/([\w-]+)", ends[2]):
                later.book.pod_gone(pod(name).uid)
            assert " more" in ends[2] or later.filtered(ends[1]) is None, words
        if share := re.match(r"a share of (\d+) GiB fits now, on (\w+)", words):
            assert found.filtered(share[2], pod_request(pod("p", int(share[1])))) is None, words
        if fewer := re.match(r"GPUs? ([\d, ]+).* can be had now, on (\w+)", words):
            request = pod_request(pod("p", gpus=len(fewer[1].split(","))))
            assert found.filtered(fewer[2], request) is None, words


def test_promises_are_made_beside_nominated_pods() -> None:
    """The room that is left is offered, and steps that make room for both."""
    book = ledger(ready_node("n", 16, 16))
    assumed(book, "n", pod("large", 16))
    assumed(book, "n", pod("small", 4))
    nominations = Nominations()
    urgent = msgspec.structs.replace(pod("urgent", 8), nominated=NodeName("n"), priority=9)
    nominations.note(urgent, pod_request(urgent))
    assert Situation(book, nominations, pod("waits", 14)).explained().helps == (
        "it fits GPU 0 of n once default/large ends (16 GiB)",
        "a share of 4 GiB fits now, on n",
    )
    assert PodUid("uid-urgent") not in book.nodes()[NodeName("n")].allocations


def test_exclusive_gpus_of_a_nominated_pod_are_offered_to_no_other() -> None:
    """The named GPUs are those that bind takes beside the pod that waits for GPU 0."""
    book, nominations = ledger(ready_node("n", 16, 16, 16)), Nominations()
    urgent = msgspec.structs.replace(pod("urgent", gpus=1), nominated=NodeName("n"), priority=9)
    nominations.note(urgent, pod_request(urgent))
    fits = Situation(book, nominations, pod("waits", gpus=2)).explained()
    assert fits.helps == ("n can take it now, on GPUs 1, 2",)
    assumed(book, "n", pod("share", 4))
    short = Situation(book, nominations, pod("waits", gpus=3)).explained()
    assert short.helps[-1] == "GPU 2 can be had now, on n"
