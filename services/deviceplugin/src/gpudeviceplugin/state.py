"""What this node knows at the moment: its cards, its pods, and the matching state between them.

One object on one event loop: watches and the driver put in, the RPCs read. Nothing in here waits on
anything but :class:`Signal`, so an RPC that asks does no I/O.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from gpucore.model import Inventory, Rung
from gpucore.node.cdi import CdiDevice
from gpucore.node.denial import Denial
from gpucore.node.devices import Resource
from gpucore.node.expected import expected_of
from gpucore.node.grant import GrantPolicy
from gpucore.node.holdings import Held
from gpucore.node.inherited import Inherited, inherited
from gpucore.node.steering import Granted, Steering
from gpucore.units import GpuIndex, PodUid
from gpucore.wire.lists import Kind
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
        outlook_changed: that, or another Node object: what to offer and to publish may differ.
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
        self.on_refused: Callable[[Denial], None] = nobody
        self.deliver: Callable[[CdiDevice], None] = nobody
        self.on_held: Callable[[list[Held]], None] = nobody
        self.on_status: Callable[[Pod, bytes], None] = nobody
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
        self.steering.believe(live, asked_at=asked_at)
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

    def listed(self, items: tuple[Pod, ...]) -> None:
        """These are all pods of the node; new ones come in order of creation, as for kubelet."""
        present = {pod.uid for pod in items}
        for uid in [uid for uid in self.pods if uid not in present]:
            self._forget(self.pods[uid])
        for pod in sorted(items, key=lambda pod: pod.creation):
            self._see(pod)
        self._inherit()
        self.pods_changed.fire()

    def happened(self, kind: Kind, item: Pod, raw: bytes) -> None:
        """One pod came, changed or went."""
        if kind is Kind.DELETED:
            self._forget(item)
        else:
            self._see(item)
            self.on_status(item, raw)
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
            self.steering.holdings.release(pod.namespace, pod.name)

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
