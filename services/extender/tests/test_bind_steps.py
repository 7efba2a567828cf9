"""A bind step by step: what is read, reserved, written, kept and recorded, in which order."""

import asyncio
import json
from typing import Any

import pytest
import structlog
from decoded import a_node, a_pod, assume, encoded, state_of
from objects import Object, placed, pod

from gpucore.model import Allocation, AllocationState, Placement
from gpucore.scheduling.grouping import Rules
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpuextender.scheduling import binding
from gpuextender.scheduling.bind import Bind, BindResult
from gpuextender.scheduling.binding import BindBatches, BindingWriter
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.messages import BindingArgs
from gpukube.errors import UnreachableError
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import RecordedRequest, Reply, ScriptedClient, failure, no_reply

UID = PodUid("u")
ITEM = pod("p", 4, uid="u")
DEADLINE = 5.0
LOST = UnreachableError("reset")


class FakeRecorder:
    """Keeps the events that were recorded."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def note(self, pod: Pod, reason: str, message: str) -> None:
        self.events.append(("Normal", pod.name, reason, message))

    def warn(self, pod: Pod, reason: str, message: str) -> None:
        self.events.append(("Warning", pod.name, reason, message))


class Bench:
    """A bind with nodes ``n`` and ``m`` of one GPU of 15 units, and a pod ``p`` that waits."""

    def __init__(self, clock: FakeClock, *replies: Reply, policy: str = "") -> None:
        nodes = (a_node("n", 15), a_node("m", 15), a_node("two", 15, 15))
        self.state = state_of(*nodes, clock=clock.now_ns)
        self.api = ScriptedClient(*replies)
        self.recorder = FakeRecorder()
        self.bind = Bind(
            self.state,
            self.api,
            self.recorder,  # type: ignore[arg-type] - as far as a bind uses it
            BindingWriter(self.api, deadline=DEADLINE, batches=BindBatches(lambda: 0, lambda: 0)),
            Gangs(self.state, Rules(), clock=clock.now_ns),
            rules=Rules(policy),
            clock=clock.now_ns,
        )
        self.state.pod_changed(a_pod(ITEM))

    async def run_bind(self, node: str = "n", uid: str = "u", name: str = "p") -> BindResult:
        """The answer to a scheduler."""
        return await self.bind.bind(BindingArgs(name, "default", uid, node))

    def used(self, node: str = "n") -> int:
        """Units that are held on a node."""
        node_info = self.state.ledger.node(NodeName(node))
        return node_info.used_units if node_info else 0

    def sent(self) -> list[tuple[str, str]]:
        """Method and last part of the path of each request."""
        return [(one.method, one.path.rpartition("/")[2]) for one in self.api.requests]


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """The writer counts in the time of the loop."""
    monkeypatch.setattr(binding, "monotonic", clock.now)


def bound(node: str, **annotations: str) -> bytes:
    """The pod as the API server has it once it is bound."""
    item = json.loads(json.dumps(ITEM))
    item["spec"]["nodeName"] = node
    item["metadata"]["annotations"] = annotations
    return encoded(item)


@pytest.mark.parametrize(
    ("reply", "lost"),
    [
        (bound("n"), False),
        (encoded(ITEM), True),
        (encoded(pod("p", 4, uid="another")), True),
        (failure(404), True),
        (failure(500), False),
        (LOST, False),
        (b"{", False),
    ],
)
async def test_a_binding_is_lost_where_the_pod_has_no_node(
    clock: FakeClock, reply: Reply, *, lost: bool
) -> None:
    """One that cannot be read keeps its GPUs until the reservation expires."""
    bench = Bench(clock, reply)
    assume(bench.state, a_pod(ITEM), "n")
    allocation = bench.state.ledger.allocation(UID)
    assert allocation is not None
    assert await bench.bind.lost(allocation) is lost
    assert bench.sent() == [("GET", "p")]


async def test_a_request_at_the_end_of_an_attempt_makes_its_own(clock: FakeClock) -> None:
    """kube-scheduler repeats a bind that took too long; what has failed is tried again."""
    again: list[asyncio.Task[BindResult]] = []

    async def refuse(_: RecordedRequest) -> bytes:
        again.append(asyncio.create_task(bench.run_bind(name="late")))
        raise LOST

    bench = Bench(clock, refuse, failure(404))
    assert await bench.run_bind(name="late") == BindResult("unreadable", "reset")
    assert await again[0] == BindResult("lost", "pod default/late not found")
    assert not bench.bind._running


async def test_gpu_memory_is_reserved_before_the_write_and_kept_after_it(clock: FakeClock) -> None:
    """Nothing is read; the Binding carries what was reserved; the event names the place."""
    seen: list[int] = []

    async def look(request: RecordedRequest) -> bytes:
        seen.append(bench.used())
        written.update(request.body["metadata"]["annotations"])
        return b"{}"

    written: dict[str, str] = {}
    bench = Bench(clock, look)
    before = metrics.BINDS.labels("bound")._value.get()
    assert await bench.run_bind() == BindResult("bound")
    assert bench.sent() == [("POST", "binding")]
    assert (seen, bench.used()) == ([4], 4)
    assert written["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    assert written["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] == str(clock.now_ns())
    assert bench.recorder.events == [
        ("Normal", "p", "GpuPlaced", "Placed: 4 GiB on GPU 0 of node n")
    ]
    assert metrics.BINDS.labels("bound")._value.get() == before + 1


async def test_a_pod_without_a_request_is_bound_without_annotations(clock: FakeClock) -> None:
    """Nothing is reserved and no event is written for it."""
    bench = Bench(clock, b"{}")
    bench.state.saw(a_pod(pod("plain", uid="plain")))
    assert await bench.run_bind("elsewhere", "plain", "plain") == BindResult("bound")
    [request] = bench.api.requests
    assert request.body["metadata"]["annotations"] == {}
    assert request.body["target"]["name"] == "elsewhere"
    assert (bench.recorder.events, bench.state.ledger.allocations()) == ([], {})


async def test_a_pod_for_whose_claims_something_is_reserved_is_bound(clock: FakeClock) -> None:
    """A place that is reserved under its UID is no Binding, whichever node it is on."""
    for node in ("n", "m"):
        plain = pod("plain", uid="plain")
        bench = Bench(clock, encoded(plain), b"{}")
        bench.state.saw(a_pod(plain))
        reserved = Allocation(
            uid=PodUid("plain"),
            namespace="default",
            name="plain",
            state=AllocationState.RESERVED,
            placement=Placement(NodeName("n"), {GpuIndex(0): 4}),
        )
        bench.state.reserve(reserved)
        assert await bench.run_bind(node, "plain", "plain") == BindResult("bound")
        assert bench.sent()[-1] == ("POST", "binding")


async def test_a_pod_that_is_not_known_is_read_and_remembered(clock: FakeClock) -> None:
    """The bind may come before the watch: one GET, then the Binding."""
    bench = Bench(clock, encoded(pod("q", 3, uid="q")), b"{}")
    assert await bench.run_bind(uid="q", name="q") == BindResult("bound")
    assert [request.path for request in bench.api.requests] == [
        "/api/v1/namespaces/default/pods/q",
        "/api/v1/namespaces/default/pods/q/binding",
    ]
    assert bench.used() == 3
    assert bench.state.pending_pod("default", "q", PodUid("q"))


@pytest.mark.parametrize("node", ["", "n", "m"])
async def test_a_pod_that_ends_while_it_is_read_is_not_kept(clock: FakeClock, node: str) -> None:
    """The watch may be quicker than the reply, and brings nothing of the pod any more."""
    item = pod("q", 40, uid="q")
    if node:
        item = placed(item, node, 0)

    async def reply(_: RecordedRequest) -> bytes:
        bench.state.pod_gone(a_pod(item))
        return encoded(item)

    bench = Bench(clock, reply)
    bench.state.pod_changed(a_pod(ITEM))
    found = await bench.run_bind(uid="q", name="q")
    assert found.fate == {"": "refused", "n": "already", "m": "lost"}[node]
    assert bench.sent() == [("GET", "q")]
    assert not bench.state.ledger.allocations()
    assert [one.pod.name for one in bench.state.waiting()] == ["p"]


async def test_a_plain_pod_that_was_read_once_is_not_read_again(clock: FakeClock) -> None:
    """It is not among the waiting pods, so it is remembered as one of a scheduler's request."""
    plain = encoded(pod("q", uid="q"))
    bench = Bench(clock, plain, failure(403, "no"), plain, b"{}")
    assert (await bench.run_bind(uid="q", name="q")).fate == "rejected"
    assert await bench.run_bind(uid="q", name="q") == BindResult("bound")
    assert [method for method, _ in bench.sent()] == ["GET", "POST", "GET", "POST"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (failure(404), BindResult("lost", "pod default/q not found")),
        (failure(500, "etcd"), BindResult("unreadable", "REQUEST: 500 etcd")),
        (LOST, BindResult("unreadable", "reset")),
        (
            encoded(pod("q", 3, uid="new")),
            BindResult(
                "lost",
                "The pod q in ns default's uid is new, and it's not equal with expected q",
            ),
        ),
    ],
)
async def test_a_pod_that_cannot_be_found_is_not_bound(
    clock: FakeClock, reply: Reply, expected: BindResult
) -> None:
    """Nothing is reserved, written or recorded; the scheduler and the log get the reason."""
    bench = Bench(clock, reply)
    with structlog.testing.capture_logs() as logs:
        assert await bench.run_bind(uid="q", name="q") == expected
    found = {"event": "not bound", "fate": expected.fate, "error": expected.error}
    assert logs == [found | {"log_level": "warning"}]
    assert bench.sent() == [("GET", "q")]
    assert (bench.recorder.events, bench.state.ledger.allocations()) == ([], {})
    assert bench.state.find("default", "q") is None


async def test_what_is_no_pod_is_not_bound(clock: FakeClock) -> None:
    """A broken reply ends the attempt with its own error."""
    found = await Bench(clock, b"[]").run_bind(uid="q", name="q")
    assert found.fate == "unreadable"
    assert found.error


async def test_a_pod_that_fits_nowhere_is_refused_without_a_write(clock: FakeClock) -> None:
    """The error names node, pod, request and reason; the pod gets the same as an event."""
    bench = Bench(clock)
    bench.state.pod_changed(a_pod(pod("large", 40, uid="large")))
    with structlog.testing.capture_logs() as logs:
        found = await bench.run_bind(uid="large", name="large")
    assert found.fate == "refused"
    start = "The node n can't place the pod large in ns default,and the pod spec is 40 GiB"
    assert found.error.startswith(start)
    assert "Insufficient GPU Memory" in found.error
    assert bench.recorder.events == [("Warning", "large", "GpuPlacementFailed", found.error)]
    assert logs == [
        {"event": "not bound", "fate": "refused", "error": found.error, "log_level": "warning"}
    ]
    assert not bench.state.ledger.allocations()


async def test_an_unknown_node_is_refused(clock: FakeClock) -> None:
    """A node that the watch never showed takes no pod with a request."""
    assert await Bench(clock).run_bind("ghost") == BindResult("refused", "node ghost is not known")


async def test_room_that_is_kept_for_a_nominated_pod_is_not_given_away(clock: FakeClock) -> None:
    """The reason counts the nominated pods."""
    bench = Bench(clock)
    urgent = pod("urgent", 15, uid="urgent", priority=10)
    urgent["status"]["nominatedNodeName"] = "n"
    bench.state.pod_changed(a_pod(urgent))
    found = await bench.run_bind()
    assert found.fate == "refused"
    assert found.error.endswith("; capacity is reserved for 1 pod nominated to this node")
    assert "; " in found.error
    assert bench.used() == 0


async def test_a_pod_takes_no_gpu_of_a_nominated_one_whose_bind_is_under_way(
    clock: FakeClock,
) -> None:
    """The watch brings the nomination while its GPUs are reserved already, and not free again."""
    bench = Bench(clock, b"{}")
    first = pod("first", 10, uid="first")
    assume(bench.state, a_pod(first), "two", now_ns=clock.now_ns())
    first["status"]["nominatedNodeName"] = "two"
    bench.state.pod_changed(a_pod(first))
    bench.state.pod_changed(a_pod(pod("p", 10, uid="u")))
    assert await bench.run_bind("two") == BindResult("bound")
    held = [bench.state.ledger.allocation(uid).placement.mem for uid in (PodUid("first"), UID)]
    assert held == [{0: 10}, {1: 10}]


async def test_a_binding_leaves_the_annotations_of_a_pod_within_the_limit(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it the API server would refuse every status; nothing is written or held."""
    bench = Bench(clock)
    own = {"note": "x" * 1000}
    bench.state.pod_changed(a_pod(pod("p", 4, uid="u", annotations=own)))
    monkeypatch.setattr("gpuextender.scheduling.bind.MOST_ANNOTATION_BYTES", 1100)
    found = await bench.run_bind()
    assert (found.fate, bench.sent(), bench.used()) == ("refused", [], 0)
    assert "the API server would refuse its status" in found.error


@pytest.mark.parametrize(
    ("policy", "annotations"),
    [("spread", {}), ("binpack", {}), ("binpack", {"gpushare/policy": "spread"})],
)
async def test_a_pod_leaves_the_gpu_that_was_freed_for_a_nominated_one(
    clock: FakeClock, policy: str, annotations: dict[str, str]
) -> None:
    """Both fit on the node; neither its policy nor its owner brings it onto that GPU."""
    bench = Bench(clock, b"{}", policy=policy)
    bench.state.pod_changed(a_pod(placed(pod("other", 10, uid="other"), "two", 1)))
    urgent = pod("urgent", 15, uid="urgent", priority=10)
    urgent["status"]["nominatedNodeName"] = "two"
    bench.state.pod_changed(a_pod(urgent))
    bench.state.pod_changed(a_pod(pod("p", 4, uid="u", annotations=annotations)))
    assert await bench.run_bind("two") == BindResult("bound")
    allocation = bench.state.ledger.allocation(UID)
    assert allocation is not None
    assert allocation.placement.mem == {1: 4}


@pytest.mark.parametrize(
    ("node", "expected"),
    [("n", BindResult("already")), ("m", BindResult("lost", "pod is already bound to node n"))],
)
async def test_a_pod_that_is_bound_is_not_written_again(
    clock: FakeClock, node: str, expected: BindResult
) -> None:
    """On its own node that is a success, elsewhere an error; both without a request."""
    bench = Bench(clock)
    bench.state.saw(a_pod(ITEM))
    bench.state.ledger.pod_changed(a_pod(placed(ITEM, "n", 0)))
    assert await bench.run_bind(node) == expected
    assert (bench.sent(), bench.used("m")) == ([], 0)


async def test_a_second_bind_to_another_node_waits_for_the_first_and_is_refused(
    clock: FakeClock,
) -> None:
    """One decision for each UID: the pod gets one Binding and holds memory on one node."""
    release = asyncio.Event()

    async def slow(_: RecordedRequest) -> bytes:
        await release.wait()
        bench.state.pod_changed(a_pod(placed(ITEM, "n", 0)))
        return b"{}"

    bench = Bench(clock, slow)
    first = asyncio.create_task(bench.run_bind("n"))
    second = asyncio.create_task(bench.run_bind("m"))
    await asyncio.sleep(1)
    assert (first.done(), second.done()) == (False, False)
    release.set()
    assert await first == BindResult("bound")
    assert await second == BindResult("lost", "pod is already bound to node n")
    assert bench.sent() == [("POST", "binding")]
    assert (bench.used("n"), bench.used("m")) == (4, 0)


async def test_a_second_bind_goes_on_where_the_first_failed(clock: FakeClock) -> None:
    """The pod is free again, so the other node gets it; each attempt is counted once."""
    before = metrics.BINDS.labels("bound")._value.get()
    bench = Bench(clock, failure(403, "quota"), encoded(ITEM), b"{}")
    first, second = await asyncio.gather(bench.run_bind("n"), bench.run_bind("m"))
    assert (first, second) == (BindResult("rejected", "REQUEST: 403 quota"), BindResult("bound"))
    assert [one.body["target"]["name"] for one in bench.api.requests if one.body] == ["n", "m"]
    assert (bench.used("n"), bench.used("m")) == (0, 4)
    assert metrics.BINDS.labels("bound")._value.get() == before + 1


async def test_an_attempt_outlives_the_request_that_began_it(clock: FakeClock) -> None:
    """A scheduler that gives up does not leave a half-done bind; a stop waits for it."""
    release = asyncio.Event()

    async def slow(_: RecordedRequest) -> bytes:
        await release.wait()
        return b"{}"

    bench = Bench(clock, slow)
    gone = asyncio.create_task(bench.run_bind())
    await asyncio.sleep(0.1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    settled = asyncio.create_task(bench.bind.settle())
    await asyncio.sleep(0.1)
    assert not settled.done()
    release.set()
    await settled
    assert [event[2] for event in bench.recorder.events] == ["GpuPlaced"]
    assert bench.used() == 4


@pytest.mark.parametrize("nominated", ["n", "m"])
async def test_a_nominated_pod_is_placed_anew_with_what_is_reserved_for_it(
    clock: FakeClock, nominated: str
) -> None:
    """On its node although nothing else is free there; elsewhere its reservation ends."""
    bench = Bench(clock, b"{}")
    if nominated == "n":
        bench.state.pod_changed(a_pod(placed(pod("holder", 11, uid="holder"), "n", 0)))
    place = Placement(NodeName(nominated), mem={GpuIndex(0): 4})
    bench.state.nominate(a_pod(ITEM), place, now_ns=clock.now_ns())
    assert await bench.run_bind("n") == BindResult("bound")
    assert bench.sent() == [("POST", "binding")]
    assert bench.used("n") == (15 if nominated == "n" else 4)
    assert bench.used("m") == 0


async def test_a_reservation_stays_where_the_binding_may_have_been_stored(clock: FakeClock) -> None:
    """A 500 and then 429s to the deadline: the pod is not read, and its memory stays reserved."""
    bench = Bench(clock, failure(500, "lost"), *[failure(429, "busy")] * 30)
    assert await bench.run_bind() == BindResult("unknown", "REQUEST: 429 busy")
    assert {method for method, _ in bench.sent()} == {"POST"}
    assert bench.used() == 4
    assert bench.recorder.events == [("Warning", "p", "GpuPlacementFailed", "REQUEST: 429 busy")]


async def test_a_server_that_was_only_busy_leaves_no_reservation(clock: FakeClock) -> None:
    """429 means that nothing was done: the pod is read, and its memory is free again."""
    bench = Bench(clock, failure(429, "busy", retry_after="60"), encoded(ITEM))
    assert await bench.run_bind() == BindResult("rejected", "REQUEST: 429 busy")
    assert bench.sent() == [("POST", "binding"), ("GET", "p")]
    assert bench.api.requests[-1].path == "/api/v1/namespaces/default/pods/p"
    assert bench.used() == 0


@pytest.mark.parametrize("others", [{}, {"other": "kept"}])
async def test_a_conflict_that_our_own_lost_write_caused_is_a_success(
    clock: FakeClock, others: dict[str, str]
) -> None:
    """The pod carries our annotations on our node: bound, and confirmed by what was read."""

    async def conflict(request: RecordedRequest) -> bytes:
        bench.api.replies.append(bound("n", **others, **request.body["metadata"]["annotations"]))
        raise failure(409, "already assigned")

    bench = Bench(clock, failure(500), conflict)
    assert await bench.run_bind() == BindResult("bound")
    allocation = bench.state.ledger.allocation(UID)
    assert allocation is not None
    assert allocation.state == "bound"
    assert [event[2] for event in bench.recorder.events] == ["GpuPlaced"]


@pytest.mark.parametrize(
    ("node", "annotations"), [("m", {}), ("n", {"ALIYUN_COM_GPU_MEM_IDX": "7"})]
)
async def test_a_pod_that_somebody_else_bound_counts_where_it_is(
    clock: FakeClock, node: str, annotations: dict[str, str]
) -> None:
    """Another node, or our node with other annotations: not our bind, and theirs is counted."""
    bench = Bench(clock, failure(409, "already assigned"), bound(node, **annotations))
    assert await bench.run_bind() == BindResult("lost", "REQUEST: 409 already assigned")
    allocation = bench.state.ledger.allocation(UID)
    assert allocation is not None
    assert (allocation.placement.node, allocation.state) == (node, "bound")
    assert bench.state.find("default", "p") is None


@pytest.mark.parametrize("end", ["deleted", "Succeeded"])
async def test_a_pod_that_the_watch_ended_while_it_was_read_holds_nothing(
    clock: FakeClock, end: str
) -> None:
    """The API server answers that it is bound; its end comes before that answer is looked at."""
    answer = bound("n", ALIYUN_COM_GPU_MEM_IDX="0")

    async def read(_: RecordedRequest) -> bytes:
        bench.state.pod_changed(a_pod(json.loads(answer)))
        if end == "deleted":
            bench.state.pod_gone(a_pod(json.loads(answer)))
        else:
            item = json.loads(answer)
            item["status"]["phase"] = end
            bench.state.pod_changed(a_pod(item))
        return answer

    bench = Bench(clock, failure(409, "already assigned"), read)
    assert await bench.run_bind() == BindResult("lost", "REQUEST: 409 already assigned")
    assert bench.used() == 0
    assert bench.state.ledger.allocation(UID) is None


async def test_a_pod_that_is_being_deleted_holds_nothing(clock: FakeClock) -> None:
    """The API server refuses the Binding of a terminating pod."""
    item = json.loads(json.dumps(ITEM))
    item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    bench = Bench(clock, failure(409, "being deleted"), encoded(item))
    assert await bench.run_bind() == BindResult("lost", "REQUEST: 409 being deleted")
    assert bench.used() == 0


@pytest.mark.parametrize("reply", [failure(404, "gone"), encoded(pod("p", 4, uid="again"))])
async def test_a_pod_that_vanished_is_forgotten(clock: FakeClock, reply: Reply) -> None:
    """Deleted, or created again under its name: neither memory nor the waiting pod stays."""
    bench = Bench(clock, failure(404, "no pod"), reply)
    assert await bench.run_bind() == BindResult("lost", "REQUEST: 404 no pod")
    assert bench.used() == 0
    assert bench.state.find("default", "p") is None
    assert bench.state.ledger.allocation(UID) is None


@pytest.mark.parametrize(
    ("reply", "text"), [(failure(500, "down"), "REQUEST: 500 down"), (b"[]", "")]
)
async def test_a_reservation_stays_where_the_pod_cannot_be_read(
    clock: FakeClock, reply: Reply, text: str
) -> None:
    """Nobody knows whether an earlier try was stored; both errors are reported."""
    bench = Bench(clock, failure(409, "conflict"), reply)
    found = await bench.run_bind()
    assert found.fate == "unknown"
    assert found.error.startswith(f"REQUEST: 409 conflict; then {text}")
    assert bench.used() == 4


async def test_binds_of_two_pods_at_once_are_two_attempts(clock: FakeClock) -> None:
    """Each pod gets its own answer, its own Binding and its own memory."""
    bench = Bench(clock, b"{}", b"{}")
    bench.state.pod_changed(a_pod(pod("q", 3, uid="v")))
    found = await asyncio.gather(bench.run_bind(), bench.run_bind(uid="v", name="q"))
    assert found == [BindResult("bound")] * 2
    assert [one.body["metadata"]["uid"] for one in bench.api.requests] == ["u", "v"]
    assert bench.used() == 7


@pytest.mark.parametrize(("policy", "gpu"), [("binpack", "0"), ("spread", "1")])
async def test_the_setting_chooses_the_gpu(clock: FakeClock, policy: str, gpu: str) -> None:
    """A second share joins the first, or goes to the empty GPU."""
    bench = Bench(clock, b"{}", policy=policy)
    bench.state.pod_changed(a_pod(placed(pod("other", 2, uid="other"), "two", 0)))
    assert await bench.run_bind("two") == BindResult("bound")
    [request] = bench.api.requests
    assert request.body["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] == gpu


async def test_every_line_in_the_log_names_pod_and_node(clock: FakeClock) -> None:
    """Also those that the attempt's callees write; the caller's own lines stay as they are."""
    bench = Bench(clock, b"{}")
    merge = structlog.contextvars.merge_contextvars
    with structlog.testing.capture_logs(processors=[merge]) as logs:
        await bench.run_bind()
        structlog.get_logger().info("after")
    about = {"pod": "default/p", "uid": "u", "node": "n", "log_level": "info"}
    assert logs == [
        about | {"event": "bound", "where": "4 GiB on GPU 0 of node n"},
        {"event": "after", "log_level": "info"},
    ]


async def test_a_stop_waits_for_every_attempt_although_one_breaks(clock: FakeClock) -> None:
    """A fault of one attempt is the answer to its own request alone."""
    release = asyncio.Event()

    async def slow(_: RecordedRequest) -> bytes:
        await release.wait()
        return b"{}"

    async def broken(_: RecordedRequest) -> bytes:
        raise ZeroDivisionError

    bench = Bench(clock, broken, slow)
    bench.state.pod_changed(a_pod(pod("q", 3, uid="v")))
    answers = [bench.run_bind(), bench.run_bind(uid="v", name="q")]
    both = asyncio.gather(*answers, return_exceptions=True)
    await asyncio.sleep(0)
    settled = asyncio.create_task(bench.bind.settle())
    await asyncio.sleep(1)
    assert not settled.done()
    release.set()
    await settled
    first, second = await both
    assert isinstance(first, ZeroDivisionError)
    assert second == BindResult("bound")


class TestAfterSilence:
    """The bind after one that got no reply: the pod is read before anything is written."""

    async def bench(self, clock: FakeClock, *replies: Reply) -> Bench:
        """After a bind that got no reply."""
        bench = Bench(clock, no_reply, *replies)
        assert await bench.run_bind() == BindResult("unknown", "the API server is silent")
        assert bench.used() == 4
        bench.api.requests.clear()
        bench.recorder.events.clear()
        return bench

    async def test_a_pod_that_is_bound_needs_no_write(self, clock: FakeClock) -> None:
        """The first Binding was stored."""
        bench = await self.bench(clock, bound("n", ALIYUN_COM_GPU_MEM_IDX="0"))
        assert await bench.run_bind() == BindResult("bound")
        assert bench.sent() == [("GET", "p")]
        assert bench.recorder.events == []

    async def test_a_pod_that_waits_is_placed_again(self, clock: FakeClock) -> None:
        """The first Binding was not stored: the other node may have the pod."""
        bench = await self.bench(clock, encoded(ITEM), b"{}")
        assert await bench.run_bind("m") == BindResult("bound")
        assert bench.sent() == [("GET", "p"), ("POST", "binding")]
        assert (bench.used("n"), bench.used("m")) == (0, 4)

    async def test_a_pod_that_is_bound_elsewhere_is_lost(self, clock: FakeClock) -> None:
        """The error states that the earlier bind may be the cause."""
        bench = await self.bench(clock, bound("n"))
        assert await bench.run_bind("m") == BindResult(
            "lost", "the outcome of an earlier bind is unknown"
        )
        assert (bench.used("n"), bench.used("m")) == (4, 0)

    async def test_a_pod_that_cannot_be_read_stays_reserved(self, clock: FakeClock) -> None:
        """Nothing is written before the truth is known."""
        bench = await self.bench(clock, failure(503, "down"))
        found = await bench.run_bind()
        assert found.fate == "unknown"
        assert found.error == "the outcome of an earlier bind is unknown; then REQUEST: 503 down"
        assert (bench.sent(), bench.used()) == ([("GET", "p")], 4)


class TestGangs:
    """Members of a gang in a bind."""

    def member(self, name: str, *mem: int) -> Object:
        """A pod of a gang of two."""
        labels: dict[str, Any] = {"gpu-topology": "g", "gpu-topology-replica": "2"}
        return pod(name, *(mem or (4,)), uid=name, labels=labels)

    async def test_a_gang_whose_pods_are_missing_is_refused(self, clock: FakeClock) -> None:
        """One of two members reserves and writes nothing."""
        bench = Bench(clock)
        bench.state.pod_changed(a_pod(self.member("g0")))
        found = await bench.run_bind(uid="g0", name="g0")
        assert found.fate == "refused"
        assert found.error.endswith(
            ": gang g waits for 1 of its 2 pods: 1 exists in namespace default"
        )
        assert not bench.state.ledger.allocations()

    async def test_the_place_of_a_member_whose_binding_is_refused_is_kept_for_it(
        self, clock: FakeClock
    ) -> None:
        """Both places of the gang stand after the refusal, and nobody else gets them."""
        bench = Bench(clock, failure(403, "quota"), encoded(self.member("g0")), b"{}")
        for name in ("g0", "g1"):
            bench.state.pod_changed(a_pod(self.member(name)))
        assert (await bench.run_bind(uid="g0", name="g0")).fate == "rejected"
        states = [allocation.state for allocation in bench.state.ledger.gang("default", "g")]
        assert states == ["reserved", "reserved"]
        assert bench.used() == 8
        assert await bench.run_bind(uid="g0", name="g0") == BindResult("bound")
        assert bench.used() == 8


async def test_an_older_reservation_elsewhere_does_not_stop_a_bind(clock: FakeClock) -> None:
    """What was assumed for another attempt is given back once the pod is read as waiting."""
    bench = Bench(clock, encoded(ITEM), b"{}")
    assume(bench.state, a_pod(ITEM), "m")
    assert await bench.run_bind("n") == BindResult("bound")
    assert (bench.used("n"), bench.used("m")) == (4, 0)
