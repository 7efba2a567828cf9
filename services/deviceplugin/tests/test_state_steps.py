"""The node's state, change by change: what is known afterwards, and who is woken."""

import asyncio
from typing import Any

import msgspec
import pytest
from claimholding import prepared
from fakedriver import t4
from msgspec.structs import replace

from gpucore.model import IsolationMode
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.allocation.matcher import Granted
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, GpuIndex, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.names import V2_ASSIGNED
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.isolation.shares import allocated_limits
from gpudeviceplugin.signals import Signal
from gpudeviceplugin.state import NOTED_SECONDS, NodeState
from gpukube.testing.clock import FakeClock

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)
CONFIRMED = {NAMES.mem_assigned: "true", V2_ASSIGNED: "true"}


def pod(name: str, *, uid: str = "", phase: str = "Pending", **more: Any) -> Pod:
    """A pod of three units, planned on GPU 0."""
    texts = {NAMES.mem_idx: "0", NAMES.mem_pod: "3", NAMES.mem_assume_time: "17"}
    made = Pod(
        PodUid(uid or f"uid-{name}"),
        "team",
        name,
        NodeName("n1"),
        phase=phase,
        annotations=texts,
        containers=(Container("c0", {"aliyun.com/gpu-mem": "3"}),),
    )
    return replace(made, **more)


RUNNING = pod("p", phase="Running", annotations=pod("p").annotations | CONFIRMED)


class World:
    """A state, and which of its signals were fired since the last look."""

    def __init__(self, policy: GrantPolicy | None = None) -> None:
        self.state = NodeState(policy or GrantPolicy())
        self.state.equip(INVENTORY)
        self._counts: dict[str, int] = {}
        self.fired()

    def fired(self) -> set[str]:
        """Names of the signals."""
        names = ("pods_changed", "inventory_changed", "outlook_changed", "grant_made")
        now = {name: getattr(self.state, name).count for name in names}
        found = {name for name in names if now[name] != self._counts.get(name)}
        self._counts = now
        return found

    def ids(self, gpu: int, first: int = 0, count: int = 3) -> tuple[str, ...]:
        """Ids of memory of a GPU."""
        table = self.state.matcher.tables[Resource.MEM]
        return table.ids[GpuIndex(gpu)][first : first + count]

    def held(self, name: str, *ids: str) -> Held:
        """Kubelet's row of a pod; without ids it lists the pod with nothing."""
        rows = {"c0": {Resource.MEM: ids}} if ids else {}
        return Held("team", name, rows)

    def sync_from_kubelet(self, *held: Held) -> bool:
        """Kubelet's account, requested now."""
        return self.state.sync_from_kubelet(held, requested_at=self.state.settled_turn())

    def certain(self) -> "World":
        """Kubelet's memory is known: no pod of before."""
        self.state.on_replace(())
        self.sync_from_kubelet()
        assert not self.state.suspicious
        self.fired()
        return self

    def holds(self, name: str) -> frozenset[GpuIndex]:
        """GPUs of a pod."""
        return self.state.matcher.gpus_held("team", name)


@pytest.fixture
async def world() -> World:
    """Two GPUs; nothing else is known."""
    return World()


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """The state reads the time of the test."""
    monkeypatch.setattr("gpudeviceplugin.state.time.monotonic", clock.now)


async def test_a_signal_wakes_all_who_have_not_seen_the_change(clock: FakeClock) -> None:
    """Who has not counted it returns at once, who has waits for the next."""
    signal = Signal()
    signal.fire()
    await signal.beyond(0)
    waiting = [asyncio.create_task(signal.beyond(1)) for _ in range(2)]
    await asyncio.sleep(1)
    assert not any(each.done() for each in waiting)
    signal.fire()
    await asyncio.wait(waiting)
    began = clock.seconds
    await signal.beyond_or_after(2, 7.0)
    assert clock.seconds == began + 7
    await signal.beyond_or_after(1, 7.0)
    assert clock.seconds == began + 7


async def test_other_gpus_are_news_and_the_same_are_not(world: World) -> None:
    """The servicer and the publisher are woken."""
    assert not world.state.equip(INVENTORY)
    assert world.fired() == set()
    assert world.state.equip(replace(INVENTORY, gpus=INVENTORY.gpus[:1]))
    assert world.fired() == {"inventory_changed", "outlook_changed"}
    assert set(world.state.matcher.tables[Resource.MEM].ids) == {0}


async def test_serving_is_published_when_it_changes(world: World) -> None:
    """Kubelet's list is the same."""
    world.state.serve(serving=False)
    assert world.fired() == set()
    world.state.serve(serving=True)
    assert (world.state.serving, world.fired()) == (True, {"outlook_changed"})


async def test_oversell_changes_the_devices_and_nothing_else_does(world: World) -> None:
    """The other settings of the node count for the next grant."""
    world.state.follow(cgpu_disable=True, oversell=1, cdi=False)
    assert (world.state.policy.cgpu_disable, world.fired()) == (True, set())
    world.state.follow(cgpu_disable=False, oversell=2, cdi=False)
    assert world.fired() == {"inventory_changed", "outlook_changed"}
    assert len(world.ids(0, 0, 99)) == 30
    world.state.equip(replace(INVENTORY, driver="570"))
    assert len(world.ids(0, 0, 99)) == 30


async def test_cdi_that_is_switched_on_writes_the_files_of_running_containers(
    world: World,
) -> None:
    """Once kubelet has reported which; not before, and not again without a switch."""
    accounts: list[int] = []
    world.state.on_held = lambda held: accounts.append(len(held))
    world.state.follow(cgpu_disable=False, oversell=1, cdi=True)
    assert accounts == []
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.state.follow(cgpu_disable=False, oversell=1, cdi=True)
    assert accounts == [1]
    world.state.follow(cgpu_disable=False, oversell=1, cdi=False)
    assert accounts == [1, 1]


async def test_a_change_of_the_gpus_has_kubelets_account_looked_at_again(world: World) -> None:
    """Its devices mean nothing without their GPUs; before kubelet reported, there is none."""
    world.state.equip(replace(INVENTORY, gpus=()))
    accounts: list[int] = []
    world.state.on_held = lambda held: accounts.append(len(held))
    world.state.equip(INVENTORY)
    assert accounts == []
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.state.equip(replace(INVENTORY, driver="570"))
    assert accounts == [1, 1]


async def test_a_grant_wakes_the_reconciler_and_a_refusal_does_not(world: World) -> None:
    """A refusal hands nothing out."""
    assert isinstance(world.state.grant(Resource.MEM, ("nothing",)), AllocationError)
    assert world.fired() == set()
    assert isinstance(world.state.grant(Resource.MEM, world.ids(0)), Granted)
    assert world.fired() == {"grant_made"}


async def test_kubelets_silence_counts_for_nothing_until_it_had_time_to_note_a_grant(
    world: World, clock: FakeClock
) -> None:
    """Two seconds: before that the account is incomplete, after that it is the truth."""
    world.certain().state.on_update(pod("p"), b"")
    world.state.grant(Resource.MEM, world.ids(0))
    assert not world.sync_from_kubelet()
    assert world.holds("p") == {0}
    clock.seconds += NOTED_SECONDS
    assert not world.sync_from_kubelet()
    assert world.holds("p") == {0}
    clock.seconds += 0.1
    assert world.sync_from_kubelet()
    assert world.holds("p") == frozenset()


async def test_an_account_with_every_grant_in_it_is_complete(world: World) -> None:
    """One id that is missing is a grant that kubelet has yet to note."""
    world.certain().state.on_update(pod("p"), b"")
    ids = world.ids(0)
    world.state.grant(Resource.MEM, ids)
    assert not world.sync_from_kubelet(world.held("p", *ids[:2]))
    assert world.sync_from_kubelet(world.held("p", *ids))


async def test_what_a_pod_had_is_free_when_it_has_ended(world: World) -> None:
    """Kubelet still lists it; the next pod gets the ids all the same."""
    world.state.on_replace((pod("p"),))
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    assert world.holds("p") == {0}
    world.state.on_update(pod("p", phase="Succeeded"), b"")
    assert world.holds("p") == frozenset()
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    assert world.holds("p") == frozenset()


@pytest.mark.parametrize("how", ["deleted", "missing from a list"])
async def test_what_a_pod_had_is_free_when_it_is_gone(world: World, how: str) -> None:
    """However that is learnt."""
    world.state.on_replace((pod("p"), pod("q")))
    world.sync_from_kubelet(world.held("p", *world.ids(0)), world.held("q", *world.ids(1)))
    world.fired()
    if how == "deleted":
        world.state.on_delete(pod("p"))
    else:
        world.state.on_replace((pod("q"),))
    assert "pods_changed" in world.fired()
    assert [each.name for each in world.state.pods.values()] == ["q"]
    assert (world.holds("p"), world.holds("q")) == (frozenset(), {1})
    assert [each.name for each in world.state.matcher.queue] == ["q"]


async def test_a_pod_that_replaced_one_of_its_name_keeps_what_it_holds(world: World) -> None:
    """A StatefulSet's pod after a forced deletion: the old one goes later."""
    old, new = pod("p", uid="old"), pod("p", uid="new")
    world.state.on_replace((old, new))
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.state.on_delete(old)
    assert world.holds("p") == {0}
    world.state.on_update(replace(new, phase="Failed"), b"")
    assert world.holds("p") == frozenset()


async def test_what_kubelet_lists_is_that_of_the_pod_of_the_name_that_lives(world: World) -> None:
    """Its predecessor has ended and is still known; only where all have ended nothing is held."""
    world.state.on_replace((pod("p", uid="old", phase="Failed"), pod("p", uid="new")))
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    assert world.holds("p") == {0}


async def test_memory_that_is_no_longer_oversold_is_offered_once(world: World) -> None:
    """The label went; twice as many devices would be too many."""
    counts = []
    for oversell in (1, 3, 2, 1):
        world.state.follow(cgpu_disable=False, oversell=oversell, cdi=False)
        counts.append(len(world.state.matcher.tables[Resource.MEM].owner))
    assert counts == [30, 90, 60, 30]


async def test_another_api_is_a_reason_to_publish(world: World) -> None:
    """The same again is not."""
    for api, fired in (
        ("claims", {"outlook_changed"}),
        ("claims", set()),
        ("", {"outlook_changed"}),
    ):
        world.state.offer(api)
        assert world.fired() == fired


async def test_only_init_containers_that_request_gpus_keep_cdi_files(world: World) -> None:
    """Of others kubelet lists what they hold; those of ended pods need none."""
    init = Container("i0", {"aliyun.com/gpu-mem": "3"})
    pods = (
        pod("plain"),
        pod("init", init_containers=(init,)),
        pod("ended", init_containers=(init,), phase="Succeeded"),
    )
    world.state.on_replace(pods)
    world.sync_from_kubelet(*(world.held(each.name, *world.ids(0)) for each in pods))
    found = world.state.initialized()
    assert found == [frozenset({INVENTORY.gpus[0].uuid, "0"})]


async def test_a_pod_of_the_same_name_that_has_ended_keeps_nothing(world: World) -> None:
    """It replaces no pod: devices of the other one are free once that one is deleted."""
    old, new = pod("p", uid="old"), pod("p", uid="new", phase="Failed")
    world.state.on_replace((old,))
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.state.on_update(new, b"")
    assert world.holds("p") == {0}
    world.state.on_delete(old)
    assert world.holds("p") == frozenset()


async def test_of_a_pod_that_has_ended_no_long_text_is_kept(world: World) -> None:
    """A tenant can name this node in thousands of pods, which kubelet fails and does not delete."""
    long = {"team": "x" * 250_000}
    boxes = pod("p").containers * 1000
    item = pod("p", phase="Failed", annotations=long, labels=long, containers=boxes)
    world.state.on_replace([item])
    world.state.on_update(item, b"")
    kept = world.state.pods[item.uid]
    assert (kept.namespace, kept.name, kept.finished) == ("team", "p", True)
    assert len(msgspec.json.encode(kept)) < 1000


async def test_pods_of_a_list_are_expected_in_order_of_creation(world: World) -> None:
    """As kubelet takes them; calls that wait for a pod are woken."""
    late, early = pod("late", creation="2026-01-02"), pod("early", creation="2026-01-01")
    world.state.on_replace((late, early))
    assert [each.name for each in world.state.matcher.queue] == ["early", "late"]
    assert "pods_changed" in world.fired()


async def test_whoever_waits_finds_the_pod_that_woke_it(world: World) -> None:
    """The pod is known before its status is read, and both before anybody is woken."""
    seen: list[Any] = []
    count = world.state.pods_changed.count

    def status(item: Pod, line: bytes) -> None:
        known = item.uid in world.state.pods
        seen.append((known, line, world.state.pods_changed.count - count))

    world.state.on_status = status
    world.state.on_update(pod("p"), b"line")
    assert seen == [(True, b"line", 0)]
    assert world.fired() == {"pods_changed"}


async def test_what_kubelet_remembers_is_certain_once_pods_and_account_agree(
    world: World,
) -> None:
    """Neither the account alone nor the pods alone; a running pod must be listed."""
    world.sync_from_kubelet()
    assert not world.state.certain.is_set()
    world.fired()
    world.state.on_replace((RUNNING,))
    assert world.fired() == {"pods_changed", "grant_made"}, "the account is fetched at once"
    world.sync_from_kubelet()
    assert not world.state.certain.is_set()
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    assert world.state.certain.is_set()
    world.state.on_replace((RUNNING,))
    assert world.fired() == {"pods_changed"}


async def test_what_kubelet_forgot_is_kept_for_the_pod_that_runs_with_it(world: World) -> None:
    """Kubelet lists the pod without devices; no other pod gets its three units of GPU 0."""
    world.state.on_replace((RUNNING,))
    world.sync_from_kubelet(world.held("p"))
    assert world.state.forgotten == {RUNNING.uid}
    assert world.holds("p") == {0}
    taken = tuple(world.state.matcher.holdings.taken(Resource.MEM))
    assert len(taken) == 3
    assert isinstance(world.state.grant(Resource.MEM, taken[:1]), AllocationError)
    world.sync_from_kubelet(world.held("p"))
    assert world.state.forgotten == {RUNNING.uid}, "also when kubelet is not suspected any more"
    world.state.on_delete(RUNNING)
    world.sync_from_kubelet()
    assert world.state.forgotten == set()
    assert isinstance(world.state.grant(Resource.MEM, taken[:1]), Granted)


async def test_a_pod_that_kubelet_empties_later_is_about_to_end(world: World) -> None:
    """Only after a restart does an empty row mean a lost record."""
    world.certain().state.on_update(RUNNING, b"")
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.sync_from_kubelet(world.held("p"))
    assert world.state.forgotten == set()
    assert world.holds("p") == frozenset()


async def test_a_kubelet_that_restarted_gives_nobody_what_running_pods_had(world: World) -> None:
    """Until it has reported: the ids are reserved at once, and the account is fetched at once."""
    world.certain().state.on_update(RUNNING, b"")
    world.state.on_update(pod("waiting", creation="2026-01-02"), b"")
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.fired()
    world.state.kubelet_restarted()
    assert (world.state.suspicious, world.fired()) == (True, {"grant_made"})
    denial = world.state.grant(Resource.MEM, world.ids(0)[:1])
    assert isinstance(denial, AllocationError)
    assert "is in use by another pod" in denial.sentence
    assert denial.pods == ("team/p",)


async def test_a_gpu_that_changes_gives_nobody_what_running_pods_had(world: World) -> None:
    """Kubelet restarted and has not reported yet: its account of before says nothing of the pod."""
    world.certain().state.on_update(RUNNING, b"")
    world.state.kubelet_restarted()
    changed = tuple(replace(gpu, healthy=gpu.index == 0) for gpu in INVENTORY.gpus)
    world.state.equip(replace(INVENTORY, gpus=changed))
    answers = [world.state.grant(Resource.MEM, (one,)) for one in world.ids(0, 0, 15)]
    assert sum(isinstance(each, AllocationError) for each in answers) == 3


async def test_what_a_pod_runs_with_stays_its_own_until_kubelet_lists_the_pod(world: World) -> None:
    """A kubelet that has just started lists no pods; their devices are not free for that."""
    world.certain().state.on_update(RUNNING, b"")
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.state.kubelet_restarted()
    world.sync_from_kubelet()
    assert world.holds("p") == {0}
    assert isinstance(world.state.grant(Resource.MEM, world.ids(0)[:1]), AllocationError)
    world.sync_from_kubelet(world.held("p", *world.ids(1)))
    assert world.holds("p") == {1}
    assert isinstance(world.state.grant(Resource.MEM, world.ids(0)[:1]), Granted)


async def test_forgotten_devices_are_not_counted_among_those_of_another_pod(world: World) -> None:
    """Kubelet lost its record, then the plugin restarted: GPU 0 lacks what both pods have."""
    texts = RUNNING.annotations | {NAMES.mem_pod: "10"}
    limits = {"aliyun.com/gpu-mem": "10"}
    old = replace(RUNNING, annotations=texts, containers=(Container("c0", limits),))
    world.state.on_replace((old,))
    world.sync_from_kubelet(world.held("p"), world.held("q", *world.ids(0, 10, 5)))
    matcher = world.state.matcher
    assert matcher.holdings.free(matcher.tables[Resource.MEM], GpuIndex(0)) == 15 - 10 - 5


async def test_a_kubelet_that_restarted_takes_pods_in_order_of_creation(world: World) -> None:
    """Not in the order in which the watch reported them."""
    for name, creation in (("late", "2026-01-02"), ("early", "2026-01-01")):
        world.state.on_update(pod(name, creation=creation), b"")
    assert [each.name for each in world.state.matcher.queue] == ["late", "early"]
    world.state.kubelet_restarted()
    assert [each.name for each in world.state.matcher.queue] == ["early", "late"]


async def test_of_a_sidecar_that_kubelet_lists_its_account_is_the_truth(world: World) -> None:
    """Only of init containers that it does not list the plugin's own record counts."""
    sidecar = Container("i0", {"aliyun.com/gpu-mem": "3"}, restart_policy="Always")
    waiting = pod("p", containers=(Container("c0"),), init_containers=(sidecar,))
    world.certain().state.on_update(waiting, b"")
    world.state.grant(Resource.MEM, world.ids(0))
    world.state._recent.clear()
    world.sync_from_kubelet(Held("team", "p", {"i0": {Resource.MEM: world.ids(1)}}))
    assert world.holds("p") == {1}


async def test_gpus_are_in_use_while_any_part_of_them_is_held(world: World) -> None:
    """Shares of a mode are those of the GPUs in that mode."""
    first, second = INVENTORY.gpus
    world.state.equip(
        replace(INVENTORY, gpus=(first, replace(second, isolation=IsolationMode.MPS)))
    )
    assert not world.state.in_use(first.index)
    table = world.state.matcher.tables[Resource.CORE]
    row = {"c0": {Resource.CORE: table.ids[first.index][:1]}}
    world.sync_from_kubelet(Held("team", "p", row))
    assert (world.state.in_use(first.index), world.state.in_use(second.index)) == (True, False)
    assert not world.state.shares_behind_mps()
    world.sync_from_kubelet(world.held("p", *world.ids(1)))
    assert world.state.shares_behind_mps()


async def test_a_node_that_offers_claims_hands_out_no_devices(world: World) -> None:
    """Also where kubelet calls in the moment of the change; its memory may be allocated by now."""
    world.certain().state.offer("claims")
    answer = world.state.grant(Resource.MEM, world.ids(0))
    assert isinstance(answer, AllocationError)
    assert answer.code is AllocationErrorCode.OFFERED_AS_CLAIMS
    world.state.offer("devices")
    assert not isinstance(world.state.grant(Resource.MEM, world.ids(0)), AllocationError)


async def test_a_prepared_claim_holds_its_gpu(world: World) -> None:
    """Then its isolation mode stays, and its MPS daemon too, but no device is granted."""
    first, second = INVENTORY.gpus
    modes = (first, replace(second, isolation=IsolationMode.MPS))
    world.state.equip(replace(INVENTORY, gpus=modes))
    world.state.claims.put(prepared("c", second, 2))
    assert (world.state.in_use(first.index), world.state.in_use(second.index)) == (False, True)
    assert world.state.shares_behind_mps()
    assert not world.state.granted(second.index)
    world.state.claims.drop("uid-c")
    assert not world.state.in_use(second.index)


async def test_what_init_containers_were_given_is_kept_while_their_pod_lives(
    world: World,
) -> None:
    """Kubelet does not list it; the account has it."""
    init = Container("i0", {"aliyun.com/gpu-mem": "3"})
    waiting = pod("p", containers=(Container("c0"),), init_containers=(init,))
    world.certain().state.on_update(waiting, b"")
    world.state.grant(Resource.MEM, world.ids(0))
    world.state._recent.clear()
    world.sync_from_kubelet(world.held("p"))
    assert world.holds("p") == {0}
    (account,) = world.state.account()
    assert account.containers == {"i0": {Resource.MEM: world.ids(0)}}
    assert world.state.initialized() == [frozenset({t4(0).uuid, "0"})]
    world.state.on_update(replace(waiting, phase="Succeeded"), b"")
    assert world.state.initialized() == []
    assert world.holds("p") == frozenset()


INIT_ONLY = pod(
    "p",
    annotations=RUNNING.annotations,
    containers=(Container("c0"),),
    init_containers=(Container("i0", {"aliyun.com/gpu-mem": "3"}),),
)


@pytest.mark.parametrize(
    "order",
    [
        ("pods", "account", "GPUs"),
        ("GPUs", "pods", "account"),
        ("GPUs", "account", "pods", "account"),  # a list of pods wakes the reconciler
    ],
)
async def test_a_plugin_that_starts_anew_knows_what_init_containers_hold(
    order: tuple[str, ...],
) -> None:
    """From the annotations, since kubelet does not list it, in whatever order things are known."""
    world = World()
    world.state.equip(replace(INVENTORY, gpus=()))
    parts = {
        "GPUs": lambda: world.state.equip(INVENTORY),
        "pods": lambda: world.state.on_replace((INIT_ONLY,)),
        "account": lambda: world.sync_from_kubelet(world.held("p")),
    }
    for part in order:
        parts[part]()
    assert world.holds("p") == {0}
    assert (world.state.in_use(GpuIndex(0)), world.state.in_use(GpuIndex(1))) == (True, False)
    assert world.state.matcher.queue.unserved() == []
    assert world.state.initialized() == [frozenset({t4(0).uuid, "0"})]
    (account,) = world.state.account()
    assert account.containers == {"i0": {Resource.MEM: world.ids(0)}}
    world.state.on_delete(INIT_ONLY)
    world.state.equip(replace(INVENTORY, driver="570"))
    assert world.holds("p") == frozenset()


async def test_the_limit_of_a_pod_counts_its_init_container_after_a_restart(world: World) -> None:
    """It requests six units and may be running; its container requests three."""
    init = Container("i0", {"aliyun.com/gpu-mem": "6"})
    texts = RUNNING.annotations | {NAMES.mem_pod: "6"}
    world.state.on_replace((pod("p", annotations=texts, init_containers=(init,)),))
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    limits = allocated_limits(world.state, INVENTORY.gpus[0])
    assert [limit.hard for limit in limits.values()] == [6 << 30]


async def test_of_a_pod_with_one_forgotten_container_all_devices_count(world: World) -> None:
    """Kubelet has lost its record of two, one of which has restarted since."""
    two = tuple(Container(name, {"aliyun.com/gpu-mem": "3"}) for name in ("c0", "c1"))
    texts = RUNNING.annotations | {NAMES.mem_pod: "6"}
    world.state.on_replace((replace(RUNNING, annotations=texts, containers=two),))
    world.sync_from_kubelet(world.held("p"))
    world.state.grant(Resource.MEM, world.ids(0))
    world.state._recent.clear()
    row = {"c1": {Resource.MEM: world.ids(0)}}
    world.sync_from_kubelet(Held("team", "p", row))
    (lost,) = world.state.lost
    assert lost.containers.keys() == {"c0"}
    limits = allocated_limits(world.state, INVENTORY.gpus[0])
    assert [limit.hard for limit in limits.values()] == [6 << 30]
    (account,) = world.state.account_with_lost()
    assert account.containers == {**lost.containers, **row}


async def test_a_pod_that_has_ended_gets_nothing_back_when_a_gpu_changes(world: World) -> None:
    """Kubelet's last account still has it."""
    world.state.on_replace((RUNNING,))
    world.sync_from_kubelet(world.held("p", *world.ids(0)))
    world.state.on_update(replace(RUNNING, phase="Succeeded"), b"")
    world.state.equip(replace(INVENTORY, driver="570"))
    assert world.holds("p") == frozenset()
    assert not world.state.in_use(GpuIndex(0))


async def test_units_of_pods_of_the_original_plugin_are_where_their_annotations_say(
    world: World,
) -> None:
    """Its ids meant nothing; GPUs, pods and account may become known in any order."""
    texts = pod("p").annotations | {NAMES.mem_assigned: "true"}
    old = pod("p", phase="Running", annotations=texts)
    world.state.on_replace((old,))
    world.sync_from_kubelet(world.held("p", *world.ids(1)))
    assert world.state.inherited.pods == {("team", "p")}
    assert world.state.inherited.displaced == {GpuIndex(0): 3}
    assert world.state.inherited.withheld == {GpuIndex(1): 3}
    assert "outlook_changed" in world.fired()
    assert world.state.in_use(GpuIndex(0))
    assert not world.state.in_use(GpuIndex(1))
    world.state.on_replace(())
    assert world.state.inherited.displaced == {}
    assert not world.state.in_use(GpuIndex(0))


@pytest.mark.parametrize("end", ["finished", "deleted"])
async def test_memory_of_an_inherited_pod_is_free_as_soon_as_it_has_ended(
    world: World, end: str
) -> None:
    """Before kubelet is asked again: the pod that takes its place may be admitted at once."""
    texts = pod("p").annotations | {NAMES.mem_assigned: "true"}
    old = pod("p", phase="Running", annotations=texts)
    world.state.on_replace((old,))
    world.sync_from_kubelet(world.held("p", *world.ids(1)))
    if end == "finished":
        world.state.on_update(replace(old, phase="Failed"), b"")
    else:
        world.state.on_delete(old)
    assert world.state.inherited.displaced == {}
    assert not world.state.in_use(GpuIndex(0))


async def test_an_inherited_pod_stays_on_its_gpu_when_kubelet_loses_its_record(
    world: World,
) -> None:
    """The devices that stay reserved for it are those that kubelet had picked on any GPU."""
    texts = pod("p").annotations | {NAMES.mem_assigned: "true"}
    world.state.on_replace((pod("p", phase="Running", annotations=texts),))
    world.sync_from_kubelet(world.held("p", *world.ids(1)))
    world.state.kubelet_restarted()
    world.sync_from_kubelet(world.held("p"))
    assert world.state.inherited.displaced == {GpuIndex(0): 3}
    assert world.holds("p") == {0}


async def test_the_drivers_limit_of_an_inherited_pod_is_that_of_the_gpu_it_uses(
    world: World,
) -> None:
    """Not of the GPU of which kubelet happened to take its devices."""
    texts = pod("p").annotations | {NAMES.mem_assigned: "true"}
    world.state.on_replace((pod("p", phase="Running", annotations=texts),))
    world.sync_from_kubelet(world.held("p", *world.ids(1)))
    on = [set(allocated_limits(world.state, gpu)) for gpu in INVENTORY.gpus[:2]]
    assert on == [{pod("p").uid}, set()]
