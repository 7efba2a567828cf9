"""Nominations of pods with claims, step by step: limits, pauses, adoption, and what is kept."""

import asyncio
from typing import Any

import msgspec
import pytest
from claimbench import GPUSHARE, Bench, claim, pod, resource_slice, template
from decoded import encoded
from nominationbench import count
from structlog.testing import capture_logs

from gpucore.model import AllocationState
from gpucore.units import NodeName
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import decode_slice
from gpuextender.claims.nominator import KEPT_SECONDS, LOOK_SECONDS, NEVER
from gpukube.errors import StatusError
from gpukube.server import time_slices
from gpukube.testing.clock import FakeClock

REFUSED = StatusError("PATCH", status=422, message="nominated meanwhile")


def test_a_list_of_pods_replaces_what_was_known() -> None:
    """Those that are gone reserve nothing; the others stay as they are."""
    asyncio.run(_relist())


async def _relist() -> None:
    bench = Bench("a")
    bench.comes("one", 8)
    kept = bench.comes("two", 4)
    await bench.round()
    assert bench.used("a") == 12
    bench.nominator.on_replace([kept, pod("three", 4)])
    assert bench.used("a") == 4
    bench.state.pod_changed(pod("three", 4))
    await bench.round()
    assert bench.written[2:] == [("three", "a")]


async def test_a_deleted_pod_gives_its_place_back_by_its_event_alone() -> None:
    """Before any other event handler has seen it."""
    bench = Bench("a")
    gone = bench.comes("one", 16)
    await bench.round()
    bench.nominator.on_delete(gone)
    assert bench.used("a") == 0


@pytest.mark.parametrize("end", ["bound", "done", "leaving"])
async def test_a_pod_that_needs_no_nomination_any_more_gives_its_place_back(end: str) -> None:
    """It is bound, has ended, or is being deleted."""
    bench = Bench("a")
    one = bench.comes("one", 16)
    await bench.round()
    changes: dict[str, Any] = {
        "bound": {"node": NodeName("b")},
        "done": {"phase": "Failed"},
        "leaving": {"terminating": True},
    }[end]
    bench.nominator.on_update(msgspec.structs.replace(one, **changes), b"")
    assert bench.used("a") == 0
    bench.comes("two", 16)
    await bench.round()
    assert bench.written == [("one", "a"), ("two", "a")]


async def test_what_is_reserved_names_its_pod_and_counts_in_units_of_the_node() -> None:
    """With what the pod requests besides GPUs."""
    bench = Bench("a")
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    one = bench.comes("one", 8, spec=spec)
    await bench.round()
    allocation = bench.state.ledger.allocation(one.uid)
    assert allocation is not None
    node_info = bench.state.ledger.node(NodeName("a"))
    assert node_info is not None
    found = (allocation.namespace, allocation.name, allocation.state, allocation.unit)
    assert found == ("ns", "one", AllocationState.RESERVED, node_info.unit)
    assert bench.state.candidates.node(NodeName("a")).requested["cpu"] == 3000
    assert allocation.assume_time > 0


async def test_the_number_of_nominations_is_limited() -> None:
    """Until their claims are allocated."""
    bench = Bench("a", limit=2)
    for name in ("one", "two", "three"):
        bench.comes(name, 4)
    await bench.round()
    assert bench.written == [("one", "a"), ("two", "a")]
    bench.allocated("one", 4, "a")
    await bench.round()
    assert bench.written[2:] == [("three", "a")]


async def test_pods_behind_those_that_fit_nowhere_are_nominated() -> None:
    """Equal pods are not tried again in the round; others are."""
    bench = Bench("a")
    bench.comes("held", 4)
    for name in ("one", "two"):
        bench.comes(name, 16, priority=-1)
    bench.comes("gated", 8, priority=-2, spec={"nodeSelector": {"a": "b"}})
    bench.comes("small", 8, priority=-3)
    await bench.round()
    assert bench.written == [("held", "a"), ("small", "a")]


async def test_an_expired_nomination_is_counted_and_cleared_where_it_was_written() -> None:
    """The patch expects what was written, and removes it."""
    bench, expired, cleared = Bench("a"), count("expired"), count("cleared")
    bench.comes("one", 16)
    await bench.round()
    bench.time += KEPT_SECONDS - 0.1
    await bench.round()
    assert bench.used("a") == 16
    bench.time += 0.1
    await bench.round()
    assert bench.used("a") == 0
    assert (count("expired"), count("cleared")) == (expired + 1, cleared + 1)
    field = "/status/nominatedNodeName"
    path = "/api/v1/namespaces/ns/pods/one/status?fieldManager=gpushare-nominator"
    assert [each.path for each in bench.api.patches] == [path] * 2
    assert bench.api.patches[0].body == [
        {"op": "test", "path": "/metadata/uid", "value": "u-one"},
        {"op": "test", "path": field, "value": None},
        {"op": "add", "path": field, "value": "a"},
    ]
    assert bench.api.patches[1].body == [
        {"op": "test", "path": "/metadata/uid", "value": "u-one"},
        {"op": "test", "path": field, "value": "a"},
        {"op": "remove", "path": field},
    ]


async def test_a_patch_that_fails_gives_the_place_back_and_the_pod_waits() -> None:
    """A quarter of a second, and a half after the next; it is counted and logged."""
    bench, failed = Bench("a"), count("failed")
    bench.comes("one", 16)
    bench.api.refusal = REFUSED
    with capture_logs() as logs:
        await bench.round()
    assert bench.used("a") == 0
    assert count("failed") == failed + 1
    entries = [one for one in logs if one["event"] == "not nominated"]
    assert [(one["pod"], one["error"]) for one in entries] == [("ns/one", str(REFUSED))]
    for pause in (0.25, 0.5):
        sent = len(bench.written)
        bench.time += pause - 0.01
        await bench.round()
        assert len(bench.written) == sent
        bench.time += 0.01
        await bench.round()
        assert len(bench.written) == sent + 1


async def test_a_clear_that_fails_leaves_the_pod_to_be_looked_at_again() -> None:
    """Somebody else may have nominated it: what it shows is read once the watch brings it."""
    bench = Bench("a")
    one = bench.comes("one", 16)
    await bench.round()
    bench.api.refusal = REFUSED
    bench.time += KEPT_SECONDS
    await bench.round()
    bench.api.refusal = None
    mine = msgspec.structs.replace(one, nominated=NodeName("a"))
    bench.api.nominated_by_us(mine)
    bench.nominator.on_update(mine, b"")
    await bench.round()
    assert bench.written[2:] == [("one", "")]


async def test_what_an_extender_wrote_before_is_cleared_and_the_pod_is_nominated_anew() -> None:
    """Each nomination is read once; the patch expects the node that it shows."""
    bench = Bench("a", "b")
    old = pod("one", 4, nominated="b")
    bench.api.nominated_by_us(old)
    bench.comes("one", 4, nominated="b")
    await bench.round()
    assert bench.written == [("one", "")]
    assert bench.api.patches[0].body[1]["value"] == "b"
    bench.comes("one", 4)
    await bench.round()
    assert bench.written == [("one", ""), ("one", "a")]


async def test_each_nomination_of_somebody_else_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And again when it is another one, or once this process leads again."""
    bench, reads = Bench("a"), list[str]()
    get = bench.api.get

    async def counted(path: str, **more: object) -> bytes:
        reads.append(path)
        return await get(path, **more)

    monkeypatch.setattr(bench.api, "get", counted)
    bench.comes("plain", 4)
    bench.comes("other", 4, nominated="b")
    for _ in range(3):
        await bench.round()
    assert reads == ["/api/v1/namespaces/ns/pods/other"]
    bench.comes("other", 4, nominated="c")
    await bench.round()
    assert len(reads) == 2
    bench.leading = False
    await bench.round()
    bench.leading = True
    await bench.round()
    assert len(reads) == 3


async def test_a_nomination_that_cannot_be_read_is_read_in_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An API server that is away for a moment ends nothing, and other pods are nominated."""
    bench = Bench("a")
    old = pod("one", 4, nominated="b")
    bench.api.nominated_by_us(old)
    bench.comes("one", 4, nominated="b")
    bench.comes("two", 4)

    async def away(_: str, **more: object) -> bytes:
        raise StatusError("GET", status=500, message="leader changed")

    get = bench.api.get
    monkeypatch.setattr(bench.api, "get", away)
    await bench.round()
    assert bench.written == [("two", "a")]
    monkeypatch.setattr(bench.api, "get", get)
    await bench.round()
    assert bench.written == [("two", "a"), ("one", "")]


async def test_a_nomination_to_a_node_that_was_seen_before_is_cleared() -> None:
    """That node was nominated by another component then, and by this process later."""
    bench = Bench("a")
    made = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "one-gpu"}]}}
    bench.comes("one", 4, nominated="a")
    await bench.round()
    bench.comes("one", 4)
    await bench.round()
    bench.api.nominated_by_us(bench.comes("one", 4, nominated="a", **made))
    bench.allocated("one", 4, "a")
    bench.given_back("one", 4)
    bench.comes("one", 4, nominated="a", **made)
    await bench.round()
    assert bench.written == [("one", "a"), ("one", "")]


async def test_a_clear_of_an_earlier_nomination_that_fails_is_repeated() -> None:
    """In the next round, so that the nomination does not stay for ever."""
    bench = Bench("a")
    bench.api.nominated_by_us(bench.comes("one", 4, nominated="b"))
    bench.api.refusal = StatusError("PATCH", status=500, message="leader changed")
    await bench.round()
    bench.api.refusal = None
    await bench.round()
    assert bench.written == [("one", "")] * 2


async def test_a_nomination_whose_reply_is_late_is_not_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch may bring it before the API server's reply, and a round may follow."""
    bench = Bench("a")
    patch, replies = bench.api.json_patch, asyncio.Event()

    async def late(path: str, operations: list[Any]) -> bytes:
        reply = await patch(path, operations)
        await replies.wait()
        return reply

    monkeypatch.setattr(bench.api, "json_patch", late)
    bench.comes("one", 4)
    await bench.nominator.round()
    await asyncio.sleep(0)
    bench.api.nominated_by_us(bench.comes("one", 4, nominated="a"))
    await bench.nominator.round()
    replies.set()
    await bench.nominator.settle()
    assert bench.written == [("one", "a")]
    assert bench.used("a") == 4


@pytest.mark.parametrize("end", ["gone", "bound"])
async def test_a_pod_that_ends_while_its_nomination_is_read_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Nothing is written for it, and nothing is kept of it."""
    bench = Bench("a")
    old = bench.comes("one", 4, nominated="b")
    bench.api.nominated_by_us(old)
    get = bench.api.get

    async def ends(path: str, **more: object) -> bytes:
        if end == "gone":
            bench.nominator.on_delete(old)
        else:
            bench.nominator.on_update(msgspec.structs.replace(old, node=NodeName("b")), b"")
        return await get(path, **more)

    monkeypatch.setattr(bench.api, "get", ends)
    await bench.round()
    assert bench.written == []
    assert not bench.nominator._seen


@pytest.mark.parametrize("shown", ["", "a"])
async def test_a_pod_whose_claim_was_given_back_is_nominated_anew(shown: str) -> None:
    """kube-scheduler may give an allocated claim back; what the API server shows is cleared."""
    bench = Bench("a")
    bench.comes("one", 4)
    await bench.round()
    made = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "one-gpu"}]}}
    bench.api.nominated_by_us(bench.comes("one", 4, nominated="a", **made))
    bench.allocated("one", 4, "a")
    await bench.round()
    bench.given_back("one", 4)
    bench.comes("one", 4, nominated=shown, **made)
    await bench.round()
    bench.comes("one", 4, **made)
    await bench.round()
    cleared = [("one", "")] if shown else []
    assert bench.written == [("one", "a"), *cleared, ("one", "a")]


async def test_what_this_process_wrote_is_not_taken_for_an_earlier_nomination() -> None:
    """The watch brings it; its claims are about to be allocated."""
    bench = Bench("a")
    bench.comes("one", 4)
    await bench.round()
    bench.api.nominated_by_us(bench.comes("one", 4, nominated="a"))
    await bench.round()
    assert bench.written == [("one", "a")]
    assert bench.used("a") == 4


async def test_the_claims_that_exist_state_what_is_requested() -> None:
    """Not the template any more, from which they were made; all of them must be known."""
    bench = Bench("a")
    one = pod("one", 16)
    made = msgspec.structs.replace(one, claims=("one-gpu",))
    bench.state.pod_changed(made)
    bench.nominator.on_update(made, b"")
    await bench.round()
    assert bench.written == []
    waiting = claim("one", 4, "a") | {"status": {}}
    bench.nominator.woken.clear()
    bench.nominator.claims.on_update(decode_claim(encoded(waiting)), b"")
    assert bench.nominator.woken.is_set()
    await bench.round()
    assert (bench.written, bench.used("a")) == ([("one", "a")], 4)


async def test_a_claim_that_is_named_and_one_that_is_not_made_yet_are_both_reserved() -> None:
    """The template states what the second will request."""
    bench = Bench("a")
    named = decode_claim(encoded(claim("own", 4, "a") | {"status": {}}))
    bench.nominator.claims.on_update(named, b"")
    both = {"claims": (named.name,), "named_claims": (named.name,)}
    one = msgspec.structs.replace(pod("one", 8), **both)
    bench.state.pod_changed(one)
    bench.nominator.on_update(one, b"")
    await bench.round()
    assert (bench.written, bench.used("a")) == ([("one", "a")], 4 + 8)


async def test_a_claim_with_admin_access_reserves_nothing() -> None:
    """It consumes nothing of the GPUs that it may open, which other pods get."""
    bench = Bench("a")
    request = {"deviceClassName": "gpushare", "allocationMode": "All", "adminAccess": True}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    metadata = {"name": "gib-0", "namespace": "ns"}
    all_gpus = encoded({"metadata": metadata, "spec": {"spec": spec}})
    bench.nominator.templates.on_update(decode_claim_template(all_gpus), b"")
    bench.comes("monitor", 0, priority=1)
    bench.comes("user", 16)
    await bench.round()
    assert bench.written == [("monitor", "a"), ("user", "a")]
    assert bench.used("a") == 16


async def test_the_pools_newest_generation_states_the_devices() -> None:
    """A slice of an older one is about to be deleted; a node without slices is none."""
    bench = Bench("a")
    older, newer = resource_slice("a"), resource_slice("a")
    newer["metadata"]["name"] = "a-new"
    newer["spec"]["pool"]["generation"] = 2
    newer["spec"]["devices"] = []
    bench.accounts.slice_changed(decode_slice(encoded(older)))
    bench.accounts.slice_changed(decode_slice(encoded(newer)))
    bench.comes("one", 4)
    await bench.round()
    assert bench.written == []


async def test_a_changed_class_counts_at_once() -> None:
    """Ratings by its old selectors are not used; a round is woken."""
    bench = Bench("a")
    bench.comes("held", 4)
    await bench.round()
    nothing = {"cel": {"expression": "device.attributes['gpu.gpushare.io'].index == 7"}}
    other = {"metadata": {"name": "gpushare"}, "spec": {"selectors": [nothing]}}
    bench.nominator.woken.clear()
    bench.nominator.classes.on_update(decode_device_class(encoded(other)), b"")
    assert bench.nominator.woken.is_set()
    bench.comes("one", 4)
    await bench.round()
    assert bench.written == [("held", "a")]
    bench.nominator.classes.on_update(decode_device_class(encoded(GPUSHARE)), b"")
    await bench.round()
    assert bench.written[1:] == [("one", "a")]


@pytest.mark.parametrize("what", ["a pod", "a template", "a node"])
async def test_what_may_let_a_pod_be_nominated_wakes_a_round(what: str) -> None:
    """A pod that is nominated does not; nor a node while no pod waits."""
    bench = Bench("a")
    bench.comes("held", 4)
    await bench.round()
    bench.nominator.woken.clear()
    bench.nominator.node_changed(NodeName("a"))
    bench.comes("held", 4, nominated="a")
    assert not bench.nominator.woken.is_set()
    if what == "a pod":
        bench.comes("one", 4)
    elif what == "a template":
        bench.nominator.templates.on_update(template(4), b"")
    else:
        bench.comes("large", 17)
        bench.nominator.woken.clear()
        bench.nominator.node_changed(NodeName("a"))
    assert bench.nominator.woken.is_set()


async def test_rounds_follow_each_other_while_pods_wait(clock: FakeClock) -> None:
    """A second apart; without a pod there is none, and one that does not lead only looks."""
    bench = Bench("a")
    assert await bench.nominator.round() == NEVER
    bench.comes("large", 17)
    assert await bench.nominator.round() == LOOK_SECONDS
    bench.leading = False
    assert await bench.nominator.round() == LOOK_SECONDS
    bench.leading = True
    bench.nominator.woken.set()
    asked = bench.asked
    task = asyncio.create_task(bench.nominator.run())
    await asyncio.sleep(3.5 * LOOK_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bench.asked - asked == 4


async def test_requests_are_served_while_a_round_looks_at_many_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between any two pods once a time slice is used up, also where no node has changed."""
    bench, served = Bench("a"), []
    for number in range(20):
        bench.comes(f"large-{number}", 17)
    await bench.round()

    async def serve() -> None:
        while True:
            served.append(None)
            await asyncio.sleep(0)

    monkeypatch.setattr(time_slices, "SECONDS", 0.0)
    requests = asyncio.create_task(serve())
    await bench.nominator.round()
    requests.cancel()
    assert len(served) >= 20


async def test_rounds_that_events_wake_are_not_repeated(clock: FakeClock) -> None:
    """Each wakes one round; afterwards there is one a second, as before."""
    bench = Bench("a")
    bench.comes("large", 17)
    task = asyncio.create_task(bench.nominator.run())
    for _ in range(20):
        bench.nominator.node_changed(NodeName("a"))
        await asyncio.sleep(LOOK_SECONDS / 50)
    asked = bench.asked
    await asyncio.sleep(3.5 * LOOK_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bench.asked - asked <= 4


async def test_a_deleted_node_is_nominated_to_nobody() -> None:
    """Its slices may stay for a moment."""
    bench = Bench("a", "b")
    bench.state.node_gone(NodeName("a"))
    bench.comes("one", 4)
    await bench.round()
    assert bench.written == [("one", "b")]


async def test_one_that_leads_again_nominates_pods_that_it_had_nominated_before() -> None:
    """The leader between has cleared what it wrote."""
    bench = Bench("a")
    bench.comes("one", 4)
    await bench.round()
    bench.leading = False
    await bench.round()
    bench.leading = True
    await bench.round()
    assert bench.written == [("one", "a"), ("one", "a")]


async def test_a_pod_that_is_gone_before_its_patch_is_not_written() -> None:
    """Nor is one whose place was given back otherwise."""
    bench = Bench("a")
    one = bench.comes("one", 4)
    await bench.nominator.round()
    bench.nominator.on_delete(one)
    await bench.nominator.settle()
    assert bench.written == []


@pytest.mark.parametrize("change", ["nominated", "gone"])
async def test_a_pod_that_changes_while_nodes_are_rated_is_not_nominated(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Rating many nodes lets other work run."""
    bench = Bench("a")
    one = bench.comes("one", 4)
    ranking = bench.nominator._ranking
    refresh = ranking.refresh

    def slow(*args: Any) -> Any:
        if change == "gone":
            bench.nominator.on_delete(one)
        else:
            bench.comes("one", 4, nominated="b")
        yield from refresh(*args)

    monkeypatch.setattr(ranking, "refresh", slow)
    await bench.round()
    assert bench.written == []
    assert bench.used("a") == 0


@pytest.mark.parametrize("meanwhile", ["expired", "resigned"])
async def test_a_nomination_that_ends_while_its_patch_is_on_its_way_is_cleared(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Once the watch brings it; then the pod is nominated anew."""
    bench = Bench("a")
    one = bench.comes("one", 16)
    patch, answer = bench.api.json_patch, asyncio.Event()

    async def slow(*args: Any) -> bytes:
        reply = await patch(*args)
        await answer.wait()
        return reply

    monkeypatch.setattr(bench.api, "json_patch", slow)
    await bench.nominator.round()
    await asyncio.sleep(0)
    bench.time += KEPT_SECONDS
    bench.leading = meanwhile == "expired"
    await bench.nominator.round()
    assert bench.used("a") == 0
    answer.set()
    await bench.nominator.settle()
    bench.leading = True
    shown = msgspec.structs.replace(one, nominated=NodeName("a"))
    bench.api.nominated_by_us(shown)
    bench.nominator.on_update(shown, b"")
    await bench.round()
    assert bench.written == [("one", "a"), ("one", "")]
    bench.nominator.on_update(one, b"")
    bench.time += 1
    await bench.round()
    assert bench.written[2:] == [("one", "a")]


async def test_a_claim_that_is_allocated_while_the_patch_is_on_its_way_needs_no_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler used the nomination; the pod is about to be bound."""
    bench = Bench("a")
    one = bench.comes("one", 16)
    patch, answer = bench.api.json_patch, asyncio.Event()

    async def slow(*args: Any) -> bytes:
        reply = await patch(*args)
        await answer.wait()
        return reply

    monkeypatch.setattr(bench.api, "json_patch", slow)
    await bench.nominator.round()
    await asyncio.sleep(0)
    shown = msgspec.structs.replace(one, nominated=NodeName("a"), claims=("one-gpu",))
    bench.api.nominated_by_us(shown)
    bench.nominator.on_update(shown, b"")
    bench.allocated("one", 16, "a")
    answer.set()
    await bench.nominator.settle()
    await bench.round()
    assert bench.written == [("one", "a")]
