"""What this node knows at the moment: its cards, its pods, and the matching state between them.

One object on one event loop: watches and the driver put in, the RPCs read. Nothing in here waits on
anything but :class:`Signal`, so an RPC that asks does no I/O.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from gpucore.model import Inventory, Rung
from gpucore.node.cdi import CdiDevice
from gpucore.node.denial import Denial
from gpucore.node.devices import Resource
from gpucore.node.expected import expected_of
from gpucore.node.forgotten import claimed_rows, forgotten, had_devices
from gpucore.node.grant import GrantPolicy
from gpucore.node.holdings import Held, Holder
from gpucore.node.inherited import Inherited, inherited
from gpucore.node.steering import Granted, Steering
from gpucore.units import GpuIndex, PodUid
from gpucore.wire.pods import Pod

NOTED_SECONDS: Final = 2.0
"""kubelet writes a grant down after it was made; until then its silence about it means nothing."""


class Signal:
    """Counts changes, and wakes those who wait for one beyond the count they have seen."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Something has changed."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def beyond(self, seen: int) -> None:
        """Until there is a change that ``seen`` does not count."""
        while self.count <= seen:
            await self._event.wait()

    async def beyond_or_after(self, seen: int, seconds: float) -> None:
        """As :meth:`beyond`, but not longer than so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.beyond(seen)


def nobody(*_: object) -> None:
    """Nobody listens yet."""


class _Recent(NamedTuple):
    """A grant that kubelet may not have written down yet.

    Attributes:
        turn: of the holdings before it was made.
    """

    made: float
    turn: int
    granted: Granted


class NodeState:
    """The node. Not safe for several threads.

    Attributes:
        inherited: pods that an original plugin placed, as of kubelet's last account.
        inventory_changed: other cards, or other health.
        deliver: writes the file of a CDI device; raises OSError.
        on_held: is called with every account of kubelet.
        outlook_changed: that, another Node object, or :attr:`serving`: what to offer and to publish
            may differ.
        certain: it is known once which devices kubelet remembers after this plugin's start.
        forgotten: running pods whose devices kubelet has lost its record of.
        serving: kubelet takes devices from this plugin; schedulers are told.
    """

    def __init__(self, policy: GrantPolicy) -> None:
        self.policy = policy
        self.inventory = Inventory(gpus=())
        one_daemon = policy.mps is not None and bool(policy.mps.pipe)
        self.steering = Steering(tuple(Resource), one_daemon=one_daemon)
        self.pods: dict[PodUid, Pod] = {}
        self.inherited = Inherited()
        self._held: list[Held] = []
        self._told = False
        self.pods_changed = Signal()
        self.inventory_changed = Signal()
        self.outlook_changed = Signal()
        self.grant_made = Signal()
        self.deliver: Callable[[CdiDevice], None] = nobody
        self.on_held: Callable[[list[Held]], None] = nobody
        self.on_status: Callable[[Pod, bytes], None] = nobody
        self.serving = False
        self.forgotten: set[PodUid] = set()
        self._suspicious = True
        self._pods_known = False
        self.certain = asyncio.Event()
        self._oversell = 1
        self._recent: deque[_Recent] = deque()

    def equip(self, inventory: Inventory) -> bool:
        """The node has these cards; false when that is no news."""
        if inventory == self.inventory:
            return False
        self.inventory = inventory
        self._offer()
        return True

    def follow(self, *, cgpu_disable: bool, oversell: int, cdi: bool) -> None:
        """Take over what the Node object says about handing out."""
        switched = cdi != self.policy.cdi
        self.policy = msgspec.structs.replace(self.policy, cgpu_disable=cgpu_disable, cdi=cdi)
        if switched and self._told:
            self.on_held(self._held)
        if oversell != self._oversell:
            self._oversell = oversell
            self._offer()

    def serve(self, *, serving: bool) -> None:
        """Whether pods that are bound to this node from now on get their devices."""
        if serving != self.serving:
            self.serving = serving
            self.outlook_changed.fire()

    def _offer(self) -> None:
        self.steering.equip(self.inventory, oversell=self._oversell)
        self._inherit()
        self.inventory_changed.fire()
        self.outlook_changed.fire()

    def allocate(self, resource: Resource, ids: tuple[str, ...]) -> Granted | Denial:
        """Hand out ``ids``, or say why not."""
        turn = self.steering.holdings.turn
        answer = self.steering.allocate(resource, ids)
        if isinstance(answer, Granted):
            self._recent.append(_Recent(time.monotonic(), turn, answer))
            self.grant_made.fire()
        return answer

    def believe(self, held: Iterable[Held], *, asked_at: int) -> bool:
        """Take kubelet's account for the truth; false while it owes an account of some grant."""
        live = [each for each in held if not self._ended(each.namespace, each.name)]
        lost = self._lost(live)
        listed = {
            Holder(each.namespace, each.name, container)
            for each in live
            for container in each.containers
        }
        told_pods = [*live, *lost]
        self.steering.believe(told_pods, asked_at=asked_at, unlisted=self._unlisted() - listed)
        self.steering.reserve(lost)
        self._held, self._told = live, True
        self._inherit()
        self.on_held(live)
        told = {
            (resource, one)
            for each in live
            for row in each.containers.values()
            for resource, ids in row.items()
            for one in ids
        }
        return all(
            (recent.granted.resource, one) in told
            for recent in self._recent
            for one in recent.granted.ids
        )

    def kubelet_restarted(self) -> None:
        """Until kubelet has told who holds what, nobody gets devices that running pods had."""
        self.steering.queue.kubelet_restarted()
        self._suspicious = True
        running = [pod for pod in self.pods.values() if had_devices(pod, self.policy.names)]
        self.steering.reserve(self._claimed(running))
        self.grant_made.fire()  # look at once

    @property
    def suspicious(self) -> bool:
        """Kubelet or this plugin restarted, and it is not known what kubelet remembers."""
        return self._suspicious

    def _lost(self, live: list[Held]) -> list[Held]:
        """The pods whose devices kubelet has forgotten, with what they hold."""
        found = forgotten(live, self.pods.values(), self.policy.names)
        if self._suspicious:
            self.forgotten = found
            listed = {(each.namespace, each.name) for each in live}
            running = [p for p in self.pods.values() if had_devices(p, self.policy.names)]
            if self._pods_known and all((p.namespace, p.name) in listed for p in running):
                self._suspicious = False
                self.certain.set()
        else:
            self.forgotten &= found
        return self._claimed(self.pods[uid] for uid in sorted(self.forgotten))

    def _claimed(self, pods: Iterable[Pod]) -> list[Held]:
        steering, names = self.steering, self.policy.names
        rows = ((pod, claimed_rows(pod, names, steering.tables, steering.holdings)) for pod in pods)
        return [Held(pod.namespace, pod.name, row) for pod, row in rows if row]

    def _unlisted(self) -> set[Holder]:
        """Init containers of the pods that have not ended: kubelet does not list them."""
        return {
            Holder(pod.namespace, pod.name, container.name)
            for pod in self.pods.values()
            if not pod.finished
            for container in pod.init_containers
        }

    def account(self) -> list[Held]:
        """Kubelet's last account, with what this plugin gave to init containers."""
        unlisted: dict[tuple[str, str], dict[str, Mapping[Resource, tuple[str, ...]]]] = {}
        for holder in self._unlisted():
            rows = self.steering.holdings.rows_of(holder)
            if rows:
                unlisted.setdefault(holder[:2], {})[holder.container] = rows
        return [
            Held(each.namespace, each.name, {**own, **each.containers})
            if (own := unlisted.get((each.namespace, each.name)))
            else each
            for each in self._held
        ]

    def _inherit(self) -> None:
        """Know the pods of an original plugin, whose place kubelet does not tell.

        Cards, pods and kubelet's account become known in any order.
        """
        self.inherited = inherited(
            self._held,
            self.pods.values(),
            self.policy.names,
            table=self.steering.tables[Resource.MEM],
            granted=self.steering.granted,
        )
        self.steering.displaced = self.inherited.displaced

    def settled_turn(self) -> int:
        """Up to which turn of the holdings kubelet's silence counts."""
        long_ago = time.monotonic() - NOTED_SECONDS
        while self._recent and self._recent[0].made < long_ago:
            self._recent.popleft()
        return self._recent[0].turn if self._recent else self.steering.holdings.turn

    def on_replace(self, items: Iterable[Pod]) -> None:
        """These are all pods of the node; new ones come in order of creation, as for kubelet."""
        listed = sorted(items, key=lambda pod: pod.creation)
        present = {pod.uid for pod in listed}
        for uid in [uid for uid in self.pods if uid not in present]:
            self._forget(self.pods[uid])
        for pod in listed:
            self._see(pod)
        self._inherit()
        self.pods_changed.fire()
        self._pods_known = True
        if self._suspicious:
            self.grant_made.fire()  # look at once

    def on_update(self, item: Pod, line: bytes) -> None:
        """One pod is new or has changed."""
        self._see(item)
        self.on_status(item, line)
        self.pods_changed.fire()

    def on_delete(self, item: Pod) -> None:
        """One pod was deleted."""
        self._forget(item)
        self.pods_changed.fire()

    def _see(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        if pod.finished:
            self._release(pod)
            return
        expected = expected_of(pod, self.policy.names)
        if expected is not None:
            self.steering.queue.see(expected)

    def _forget(self, pod: Pod) -> None:
        self.pods.pop(pod.uid, None)
        self._release(pod)

    def _release(self, pod: Pod) -> None:
        self.steering.queue.drop(pod.uid)
        if not self._replaced(pod):
            self.steering.release(pod.namespace, pod.name)

    def initialized(self) -> list[frozenset[str]]:
        """UUIDs and indexes of the GPUs of each live pod whose init containers request some."""
        found = []
        for pod in self.pods.values():
            expected = None if pod.finished else expected_of(pod, self.policy.names)
            if expected is not None and any(step.init for step in expected.steps):
                held = self.steering.cards_held(pod.namespace, pod.name)
                gpus = [gpu for gpu in self.inventory.gpus if gpu.index in held]
                found.append(frozenset(text for g in gpus for text in (g.uuid, str(g.index))))
        return found

    def shares_on(self, rung: Rung) -> bool:
        """Somebody holds a part of a GPU in this mode."""
        return any(self.in_use(gpu.index) for gpu in self.inventory.gpus if gpu.rung is rung)

    def in_use(self, card: GpuIndex) -> bool:
        """Somebody holds a part of the card."""
        steering = self.steering
        return any(steering.holdings.holders(each, card) for each in steering.tables.values())

    def _ended(self, namespace: str, name: str) -> bool:
        """The pod is known and has ended; kubelet still lists what it had."""
        same = [pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return bool(same) and all(pod.finished for pod in same)

    def _replaced(self, pod: Pod) -> bool:
        """Another pod of the same name lives already (a StatefulSet's after a forced deletion)."""
        return any(
            other.uid != pod.uid
            and not other.finished
            and (other.namespace, other.name) == (pod.namespace, pod.name)
            for other in self.pods.values()
        )
