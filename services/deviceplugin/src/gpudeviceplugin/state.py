"""State of this node: its GPUs, its pods, and the matching of kubelet's calls.

One object on one event loop: watches and the driver write it, the RPCs read it. Nothing here waits
for anything but :class:`Signal`, so an RPC does no I/O.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from gpucore.model import Inventory
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held, Holder
from gpucore.node.allocation.matcher import AllocationMatcher, Granted
from gpucore.node.allocation.reading import expected_of
from gpucore.node.claims.held import HeldClaims
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.cdi import CdiDevice
from gpucore.node.reconcile.forgotten import (
    allocated,
    forgotten,
    had_devices,
    restarting,
    with_inits,
)
from gpucore.node.reconcile.inherited import Inherited, inherited
from gpucore.units import GpuIndex, PodUid
from gpucore.wire.names import API_CLAIMS, API_DEVICES
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.signals import Signal

NOTED_SECONDS: Final = 2.0
"""Seconds until kubelet lists an allocation; a shorter absence from its list means nothing."""


def ignore(*_: object) -> None:
    """A callback that does nothing."""


async def wait_for_nothing() -> None:
    """A wait that is over at once."""


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
        inventory_changed: other GPUs, or other health.
        deliver: writes the file of a CDI device; raises OSError.
        stop_sweep: is awaited before each grant, and after each prepared claim.
        on_held: is called with every account of kubelet, and again with other GPUs.
        on_unknown_pod: is called when kubelet admits a pod that is not known here.
        outlook_changed: set with ``inventory_changed``, for another Node object and for
            :attr:`serving`: the devices offered and the data published may differ.
        certain: set once kubelet has reported its allocations after this plugin's start.
        forgotten: running pods whose devices kubelet has lost its record of.
        lost: what those hold; after a restart also what the running pods hold that kubelet has yet
            to list.
        serving: kubelet takes devices from this plugin; schedulers are notified.
        claims: the ResourceClaims that are prepared on this node.
        api: ``devices`` or ``claims``, what the node offers; empty while that is not decided, and
            where pods hold shares of both kinds.
        api_chosen: it is known what the node should offer.
    """

    def __init__(self, policy: GrantPolicy) -> None:
        self.policy = policy
        self.inventory = Inventory(gpus=())
        one_daemon = policy.mps is not None and bool(policy.mps.pipe)
        self.matcher = AllocationMatcher(tuple(Resource), one_daemon=one_daemon)
        self.pods: dict[PodUid, Pod] = {}
        self.claims = HeldClaims()
        self.api = API_DEVICES
        self.api_chosen = True
        self.inherited = Inherited()
        self._held: list[Held] = []
        self._lost_pods: set[PodUid] = set()
        self._requested_at = 0
        self.lost: list[Held] = []
        self._synced = False
        self.pods_changed = Signal()
        self.inventory_changed = Signal()
        self.outlook_changed = Signal()
        self.grant_made = Signal()
        self.deliver: Callable[[CdiDevice], None] = ignore
        self.stop_sweep: Callable[[], Awaitable[None]] = wait_for_nothing
        self.on_held: Callable[[list[Held]], None] = ignore
        self.on_status: Callable[[Pod, bytes], None] = ignore
        self.on_unknown_pod: Callable[[], None] = ignore
        self.serving = False
        self.forgotten: set[PodUid] = set()
        self._suspicious = True
        self._pods_known = False
        self.certain = asyncio.Event()
        self._oversell = 1
        self._recent: deque[_Recent] = deque()

    def equip(self, inventory: Inventory) -> bool:
        """Set the GPUs of the node; false when nothing changed."""
        if inventory == self.inventory:
            return False
        self.inventory = inventory
        self._offer()
        return True

    def follow(self, *, cgpu_disable: bool, oversell: int, cdi: bool) -> None:
        """Take over the settings of the Node object."""
        switched = cdi != self.policy.cdi
        self.policy = msgspec.structs.replace(self.policy, cgpu_disable=cgpu_disable, cdi=cdi)
        if switched and self._synced:
            self.on_held(self._held)
        if oversell != self._oversell:
            self._oversell = oversell
            self._offer()

    def serve(self, *, serving: bool) -> None:
        """Set whether kubelet takes devices from this plugin."""
        if serving != self.serving:
            self.serving = serving
            self.outlook_changed.fire()

    def offer(self, api: str, *, chosen: bool = True) -> None:
        """Set how the node offers its GPUs: ``devices``, ``claims``, or empty for neither."""
        if (api, chosen) != (self.api, self.api_chosen):
            self.api, self.api_chosen = api, chosen
            self.outlook_changed.fire()

    def _offer(self) -> None:
        self.matcher.equip(self.inventory, oversell=self._oversell)
        if not self._suspicious:
            self._account()  # ids that stand for what kubelet does not list depend on the GPUs
        self._inherit()
        if self._synced:
            self.on_held(self._held)
        self.inventory_changed.fire()
        self.outlook_changed.fire()

    def grant(self, resource: Resource, ids: tuple[str, ...]) -> Granted | AllocationError:
        """Allocate ``ids``, or return the reason why not."""
        if self.api == API_CLAIMS:
            why = "this node offers its GPUs as ResourceClaims"
            return AllocationError(AllocationErrorCode.OFFERED_AS_CLAIMS, why)
        turn = self.matcher.holdings.turn
        answer = self.matcher.allocate(resource, ids)
        if isinstance(answer, Granted):
            self._recent.append(_Recent(time.monotonic(), turn, answer))
            self.grant_made.fire()
        return answer

    def sync_from_kubelet(self, held: Iterable[Held], *, requested_at: int) -> bool:
        """Take over kubelet's allocations; false while one that was granted is missing."""
        live = [each for each in held if not self._ended(each.namespace, each.name)]
        self._lost_pods, self._held, self._requested_at = self._lost(live), live, requested_at
        self._account()
        self._synced = True
        self._inherit()
        self.on_held(live)
        listed_ids = {pair for each in live for pair in each.ids()}
        return all(
            (recent.granted.resource, one) in listed_ids
            for recent in self._recent
            for one in recent.granted.ids
        )

    def _account(self) -> None:
        """Take over kubelet's last account, and what containers hold that it does not list."""
        live, pods = self._held, self.pods
        self.lost = self._allocated(
            [pods[uid] for uid in sorted(self._lost_pods & pods.keys())], listed=live
        )
        known = [*live, *self.lost]
        inits = self._allocated(with_inits(live, pods.values(), self.policy.names), listed=known)
        listed = {
            Holder(each.namespace, each.name, container)
            for each in live
            for container in each.containers
        }
        self.matcher.sync_from_kubelet(
            [*known, *inits], requested_at=self._requested_at, unlisted=self._unlisted() - listed
        )
        self.matcher.reserve(self.lost)
        self.matcher.restarting = restarting(live, pods.values(), self.policy.names)

    def kubelet_restarted(self) -> None:
        """Reserve the devices of running pods until kubelet has reported its allocations."""
        self.matcher.queue.kubelet_restarted()
        self._suspicious = True
        self.matcher.reserve(self._allocated(self._running()))
        self.grant_made.fire()  # look at once

    @property
    def suspicious(self) -> bool:
        """Kubelet or this plugin restarted, and kubelet has not listed its allocations since."""
        return self._suspicious

    def _lost(self, live: list[Held]) -> set[PodUid]:
        """Running pods that kubelet has forgotten, or not listed since a restart."""
        found = forgotten(live, self.pods.values(), self.policy.names)
        if not self._suspicious:
            self.forgotten &= found
            unlisted = set()
        else:
            self.forgotten = found
            listed = {(each.namespace, each.name) for each in live}
            unlisted = {p.uid for p in self._running() if (p.namespace, p.name) not in listed}
            if self._pods_known and not unlisted:
                self._suspicious = False
                self.certain.set()
        return self.forgotten | unlisted

    def _running(self) -> list[Pod]:
        """The pods that run with devices."""
        return [pod for pod in self.pods.values() if had_devices(pod, self.policy.names)]

    def _allocated(self, pods: Iterable[Pod], listed: Iterable[Held] = ()) -> list[Held]:
        matcher = self.matcher
        return allocated(pods, self.policy.names, matcher.tables, matcher.holdings, listed=listed)

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
            rows = self.matcher.holdings.rows_of(holder)
            if rows:
                unlisted.setdefault(holder[:2], {})[holder.container] = rows
        return [
            Held(each.namespace, each.name, {**own, **each.containers})
            if (own := unlisted.get((each.namespace, each.name)))
            else each
            for each in self._held
        ]

    def account_with_lost(self) -> list[Held]:
        """:meth:`account`, with the devices of running containers that kubelet does not list."""
        merged: dict[tuple[str, str], dict[str, Mapping[Resource, tuple[str, ...]]]] = {}
        for each in (*self.account(), *self.lost):
            merged.setdefault((each.namespace, each.name), {}).update(each.containers)
        return [Held(namespace, name, rows) for (namespace, name), rows in merged.items()]

    def containers_with_devices(self, pod: Pod) -> frozenset[str]:
        """Names of the containers that hold devices by kubelet's last account."""
        same = (
            each for each in self._held if (each.namespace, each.name) == (pod.namespace, pod.name)
        )
        return frozenset(name for each in same for name in each.containers)

    def _inherit(self) -> None:
        """Find the pods of an original plugin, whose GPUs kubelet does not report.

        GPUs, pods and kubelet's account arrive in any order.
        """
        found = inherited(
            self.account_with_lost(),
            self.pods.values(),
            self.policy.names,
            table=self.matcher.tables[Resource.MEM],
            granted=self.matcher.granted,
        )
        self.matcher.inherit(found.gpus, found.displaced)
        withheld, self.inherited = self.inherited.withheld, found
        if withheld != found.withheld:
            self.outlook_changed.fire()

    def settled_turn(self) -> int:
        """The turn of the holdings up to which a device missing from kubelet's list is free."""
        long_ago = time.monotonic() - NOTED_SECONDS
        while self._recent and self._recent[0].made < long_ago:
            self._recent.popleft()
        return self._recent[0].turn if self._recent else self.matcher.holdings.turn

    def on_replace(self, items: Iterable[Pod]) -> None:
        """Replace all pods of the node; new ones are added in order of creation, as by kubelet."""
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
        """Take over a new or changed pod."""
        self._see(item)
        self.on_status(item, line)
        self.pods_changed.fire()

    def on_delete(self, item: Pod) -> None:
        """Forget a deleted pod."""
        self._forget(item)
        self.pods_changed.fire()

    def _see(self, pod: Pod) -> None:
        if pod.finished:
            self.pods[pod.uid] = _without_texts(pod)
            self._release(pod)
            return
        self.pods[pod.uid] = pod
        expected = expected_of(pod, self.policy.names)
        if expected is not None:
            self.matcher.see(expected)

    def _forget(self, pod: Pod) -> None:
        self.pods.pop(pod.uid, None)
        self._release(pod)

    def _release(self, pod: Pod) -> None:
        self.matcher.queue.drop(pod.uid)
        if not self._replaced(pod):
            self.matcher.release(pod.namespace, pod.name)
            name = (pod.namespace, pod.name)
            self._held = [each for each in self._held if (each.namespace, each.name) != name]
            if name in self.inherited.gpus:
                self._inherit()

    def initialized(self) -> list[frozenset[str]]:
        """UUIDs and indexes of the GPUs of each live pod whose init containers request some."""
        found = []
        for pod in self.pods.values():
            expected = None if pod.finished else expected_of(pod, self.policy.names)
            if expected is not None and any(step.init for step in expected.steps):
                held = self.matcher.gpus_held(pod.namespace, pod.name)
                gpus = [gpu for gpu in self.inventory.gpus if gpu.index in held]
                found.append(frozenset(text for g in gpus for text in (g.uuid, str(g.index))))
        return found

    def shares_behind_mps(self) -> bool:
        """A pod holds a part of a GPU that an MPS daemon serves."""
        return any(self.in_use(gpu.index) for gpu in self.inventory.gpus if gpu.isolation.uses_mps)

    def in_use(self, index: GpuIndex) -> bool:
        """A pod holds a part of the GPU, as devices or by a claim."""
        uuids = [gpu.uuid for gpu in self.inventory.gpus if gpu.index == index]
        return self.granted(index) or any(map(self.claims.on, uuids))

    def granted(self, index: GpuIndex) -> bool:
        """A pod holds a part of the GPU as devices of the device plugin."""
        matcher = self.matcher
        return any(matcher.holdings.holders(each, index) for each in matcher.tables.values())

    def _ended(self, namespace: str, name: str) -> bool:
        """The pod has ended, though kubelet may still list its devices."""
        same = [pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return bool(same) and all(pod.finished for pod in same)

    def _replaced(self, pod: Pod) -> bool:
        """Another pod of the same name lives already (a StatefulSet's after a forced deletion)."""
        return any(
            other.name == pod.name
            and other.namespace == pod.namespace
            and other.uid != pod.uid
            and not other.finished
            for other in self.pods.values()
        )


def _without_texts(pod: Pod) -> Pod:
    """A pod that ended, without what its author may have made long.

    Tenants choose how many of these stay on the node: any number that names it, none of which
    kubelet has to start.
    """
    return msgspec.structs.replace(
        pod, annotations={}, labels={}, containers=(), init_containers=(), ephemeral_containers=()
    )
