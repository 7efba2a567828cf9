"""Preferred device IDs for kubelet's call, and the check of the IDs that kubelet chose.

The GPU that the scheduler chose takes precedence. If it has too few free devices (two schedulers, a
pod that bypassed them), another GPU that fits the whole pod is chosen; if none fits, the pod is
refused with a sentence. Later containers of a pod use the GPU that its first one got.

A container that restarts after kubelet has lost its record gets the devices that are reserved for
it. kubelet calls for such a container alone, in no order.

This module does no I/O. The caller waits and retries when :meth:`AllocationMatcher.prefer`
finds no pod for the call.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from gpucore.model import GpuAmounts, Inventory, IsolationMode
from gpucore.node.allocation.admission_queue import AdmissionQueue, Turn
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode, gpu_list
from gpucore.node.allocation.device_ids import SHARES, DeviceTable, Resource, device_table
from gpucore.node.allocation.device_picker import DevicePicker, NodeDevices
from gpucore.node.allocation.expected import Expected
from gpucore.node.allocation.holdings import NOBODY_KNOWN, Held, Holder, Holdings
from gpucore.units import GpuIndex


class PreferenceRequest(msgspec.Struct, frozen=True):
    """kubelet's GetPreferredAllocation request.

    Attributes:
        available: ids it could take, ``required`` among them.
        required: ids it will take in any case (an init container of the pod had them).
        amount: number of ids that it will take in all.
    """

    resource: Resource
    available: frozenset[str]
    required: tuple[str, ...]
    amount: int


class Granted(msgspec.Struct, frozen=True):
    """Ids that may be used.

    Attributes:
        turn: the container they are meant for; ``None`` when no known pod requests this.
        gpus: how many are on each GPU; exclusive GPUs in the order of their group.
    """

    resource: Resource
    ids: tuple[str, ...]
    gpus: GpuAmounts
    turn: Turn | None = None


class _Answered(NamedTuple):
    """What was advised last, so that the ids that follow are known to be for the same pod."""

    turn: Turn | None
    resource: Resource
    ids: frozenset[str]


class AllocationMatcher:
    """The matching state of one node. Not safe for several threads."""

    def __init__(self, served: tuple[Resource, ...], *, one_daemon: bool = False) -> None:
        """Serve these resources; ``one_daemon``: one MPS daemon serves all GPUs of the node."""
        self._one_daemon = one_daemon
        self.queue = AdmissionQueue(served)
        self.holdings = Holdings()
        self.tables: dict[Resource, DeviceTable] = {}
        self.closed: frozenset[GpuIndex] = frozenset()
        self.single: frozenset[GpuIndex] = frozenset()
        self.isolations: dict[GpuIndex, IsolationMode] = {}
        self._alone: set[tuple[str, str]] = set()
        self.granted: set[str] = set()
        self.restarting: list[Expected] = []
        self._reserved: dict[tuple[Resource, str], Holder] = {}
        self._answered: _Answered | None = None
        self._stranger: Granted | None = None
        self.equip(Inventory(gpus=()))

    def equip(self, inventory: Inventory, *, oversell: int = 1) -> None:
        """The node has these GPUs from now on; unhealthy ones give nothing."""
        self.tables = {each: device_table(inventory, each, oversell=oversell) for each in Resource}
        self._sizes = {
            each: sorted(map(len, table.ids.values()), reverse=True)
            for each, table in self.tables.items()
        }
        self.single = frozenset(gpu.index for gpu in inventory.gpus if gpu.mig)
        self.closed = frozenset(gpu.index for gpu in inventory.gpus if not gpu.healthy)
        self.isolations = {gpu.index: gpu.isolation for gpu in inventory.gpus}

    def see(self, pod: Expected) -> None:
        """A pod of this node arrived or changed."""
        self.queue.see(pod)
        name = (pod.namespace, pod.name)
        if pod.alone:
            self._alone.add(name)
        else:
            self._alone.discard(name)

    def sync_from_kubelet(
        self, listed: Iterable[Held], *, requested_at: int, unlisted: Collection[Holder] = ()
    ) -> None:
        """Apply kubelet's allocations, requested at a turn of the holdings.

        Its reply lacks ``unlisted`` containers (init containers).
        """
        reported = list(listed)
        self.holdings.replace(reported, requested_at=requested_at, unlisted=unlisted)
        self.queue.sync_from_kubelet(reported, requested_at=requested_at)

    def inherit(
        self, gpus: Mapping[tuple[str, str], GpuAmounts], displaced: Counter[GpuIndex]
    ) -> None:
        """Pods that an original plugin placed, with their units on each GPU.

        Of one on a GPU that the node has lost, the devices are all that is known.
        """
        known = self.tables[Resource.MEM].ids.keys()
        placed = {pod: on for pod, on in gpus.items() if on.keys() <= known}
        self.holdings.inherit(placed, displaced)

    def reserve(self, forgotten: Iterable[Held]) -> None:
        """These pods hold devices that kubelet lists as free: no other pod gets them."""
        self._reserved = {
            (resource, one): Holder(held.namespace, held.name, container)
            for held in forgotten
            for container, row in held.containers.items()
            for resource, ids in row.items()
            for one in ids
        }

    def release(self, namespace: str, pod: str) -> None:
        """A pod has ended: nothing is held by it or reserved for it."""
        self.holdings.release(namespace, pod)
        self._alone.discard((namespace, pod))
        self._reserved = {
            key: holder for key, holder in self._reserved.items() if holder[:2] != (namespace, pod)
        }

    def prefer(self, question: PreferenceRequest) -> tuple[str, ...] | AllocationError | None:
        """Ids that kubelet should take; ``None`` when no known pod requests this (yet).

        Kubelet rejects a pod that requests more than the node has, often before it calls: such a
        pod takes no call from a later one. A call that no other pod requests is answered at once.
        """
        turn = self.queue.turn(question.resource, question.amount, self._may_run)
        if turn is not None:
            return self._advise(turn, question)
        hopeless = self.queue.turn(question.resource, question.amount)
        return None if hopeless is None else self.adopt(question)

    def adopt(self, question: PreferenceRequest) -> tuple[str, ...] | AllocationError:
        """As :meth:`prefer`, for a container that restarts, else for an unknown pod: best fit.

        Memory and compute of a container are on one GPU, so there is no other for the second.
        """
        turn = self._restart(question.resource, question.amount)
        return self._best_fit(question) if turn is None else self._advise(turn, question)

    def _advise(self, turn: Turn, question: PreferenceRequest) -> tuple[str, ...] | AllocationError:
        gpus = self._where(turn, question, self._fixed(turn, question))
        return self._answer(turn, question, gpus)

    def _best_fit(self, question: PreferenceRequest) -> tuple[str, ...] | AllocationError:
        required = tuple(sorted(self.tables[question.resource].per_device(question.required)))
        choosing = self._choosing(None, question)
        if question.resource is Resource.GPU:
            return self._answer(None, question, choosing.whole(None, {}, required))
        follows = () if required else self._unplanned_gpus(question)
        fixed = required or follows
        gpus = choosing.on(fixed, None) if fixed else choosing.anywhere(None)
        if isinstance(gpus, AllocationError) and not follows:
            gpus = choosing.anywhere(None)
        return self._answer(None, question, gpus)

    def allocate(self, resource: Resource, ids: tuple[str, ...]) -> Granted | AllocationError:
        """Whether ``ids`` may be used, and for whom they are."""
        turn = self._turn(resource, ids)
        denial = self._denial(turn, resource, ids)
        if denial is not None:
            if turn is not None:
                self.queue.turn_away(turn.pod.uid)
            return denial
        gpus = _in_order(self.tables[resource].per_device(ids), turn, resource)
        granted = Granted(resource, ids, gpus, turn)
        self._note(granted)
        return granted

    def gpus_held(self, namespace: str, pod: str) -> frozenset[GpuIndex]:
        """GPUs of which a pod holds anything."""
        inherited = self.holdings.inherited.get((namespace, pod))
        if inherited is not None:
            return frozenset(inherited)
        return frozenset(
            gpu
            for resource, table in self.tables.items()
            for gpu in table.per_device(self.holdings.held_by(resource, namespace, pod))
        )

    def _note(self, granted: Granted) -> None:
        turn = granted.turn
        self.holdings.take(granted.resource, granted.ids, _holder(turn))
        if granted.resource is Resource.MEM:  # ids of compute are spelled like these
            self.granted.update(granted.ids)
        self._stranger = granted if turn is None else None
        if turn is not None:
            self.queue.give(turn, granted.resource, granted.ids, at=self.holdings.turn)

    def _room(self) -> NodeDevices:
        return NodeDevices(
            self.tables,
            self.holdings,
            self.queue,
            self.closed,
            self.single,
            self.isolations,
            self._alone,
        )

    def _choosing(self, turn: Turn | None, question: PreferenceRequest) -> DevicePicker:
        table = self.tables[question.resource]
        available = table.per_device(self._free(turn, question))
        if question.resource is Resource.MEM:  # what inherited pods really use of a GPU
            available -= self.holdings.displaced
        return DevicePicker(self._room(), table, question.amount, available)

    def _free(self, turn: Turn | None, question: PreferenceRequest) -> frozenset[str]:
        """What kubelet calls available, less what is reserved for others."""
        if not self._reserved:
            return question.available
        kind, mine = question.resource, _holder(turn)
        return frozenset(
            one for one in question.available if self._reserved.get((kind, one), mine) == mine
        )

    def _own(self, turn: Turn | None, question: PreferenceRequest) -> tuple[str, ...]:
        """Available ids that are reserved for the very container."""
        kind, mine = question.resource, _holder(turn)
        return tuple(
            one
            for (resource, one), holder in self._reserved.items()
            if resource is kind and holder == mine and one in question.available
        )

    def _answer(
        self, turn: Turn | None, question: PreferenceRequest, gpus: GpuAmounts | AllocationError
    ) -> tuple[str, ...] | AllocationError:
        if isinstance(gpus, AllocationError):
            if turn is not None:
                self.queue.turn_away(turn.pod.uid)
            return gpus
        table, among = self.tables[question.resource], self._free(turn, question)
        own = [one for one in self._own(turn, question) if table.owner.get(one) in gpus]
        first = question.required or own[: question.amount]
        # kubelet offers devices again where a list of its allocations met the call for them
        last = self.holdings.taken(question.resource)
        ids = table.pick(gpus, among=among, first=first, last=last)
        self._answered = _Answered(turn, question.resource, frozenset(ids))
        return ids

    def _fixed(self, turn: Turn, question: PreferenceRequest) -> tuple[GpuIndex, ...]:
        """GPUs that are settled already: by kubelet, by this container, by this pod."""
        required = self.tables[question.resource].per_device(question.required)
        if required or question.resource not in SHARES:
            return tuple(sorted(required))
        return self._pod_gpus(turn)

    def _pod_gpus(self, turn: Turn) -> tuple[GpuIndex, ...]:
        gpus = {gpu for each in SHARES for gpu in self._gpus(turn, self.tables[each])}
        return tuple(sorted(gpus))

    def _gpus(self, turn: Turn, table: DeviceTable) -> tuple[GpuIndex, ...]:
        pod = turn.pod
        if pod.uid in self.queue:
            return self.queue.gpus(turn, table)
        held = self.holdings.held_by(table.resource, pod.namespace, pod.name)
        return tuple(sorted(table.per_device(held)))

    def _where(
        self, turn: Turn, question: PreferenceRequest, fixed: tuple[GpuIndex, ...]
    ) -> GpuAmounts | AllocationError:
        choosing, pod = self._choosing(turn, question), turn.pod
        plan = turn.step.plan.get(question.resource, {})
        if question.resource is Resource.GPU:
            return choosing.whole(pod, plan, fixed)
        if plan and self._continues(plan, turn, question, fixed):
            planned = choosing.exactly(plan, pod)
            if not isinstance(planned, AllocationError):
                return planned
        return choosing.on(fixed, pod) if fixed else choosing.anywhere(pod)

    def _continues(
        self,
        plan: GpuAmounts,
        turn: Turn,
        question: PreferenceRequest,
        fixed: tuple[GpuIndex, ...],
    ) -> bool:
        """The plan has what is settled, and the pod ends on no more GPUs than it requests.

        A container with few units has them of some of the pod's GPUs only, and the next one may
        have its units of the others.
        """
        required = self.tables[question.resource].per_device(question.required)
        if any(plan.get(gpu, 0) < amount for gpu, amount in required.items()):
            return False
        return not fixed or len({*plan, *fixed}) <= turn.pod.gpu_count

    def _unplanned_gpus(self, question: PreferenceRequest) -> tuple[GpuIndex, ...]:
        """Compute follows memory: kubelet takes both for a container, one right after the other."""
        last = self._stranger
        if last is None or last.resource == question.resource or question.resource not in SHARES:
            return ()
        return tuple(sorted(last.gpus)) if last.resource in SHARES else ()

    def _turn(self, resource: Resource, ids: tuple[str, ...]) -> Turn | None:
        answered, self._answered = self._answered, None
        if answered and answered.resource is resource and answered.ids == frozenset(ids):
            turn = answered.turn
            if turn is None or turn.pod.uid in self.queue or turn.pod in self.restarting:
                return turn
        return self.queue.turn(resource, len(ids), self._may_run)

    def _may_run(self, pod: Expected) -> bool:
        """No container requests more than the node has on as many GPUs as the pod may use.

        What is too much is counted in devices, so kubelet or this plugin rejects the pod in any
        case.
        """
        most = {
            resource: sum(sizes if resource is Resource.GPU else sizes[: pod.gpu_count])
            for resource, sizes in self._sizes.items()
        }
        return all(
            resource.requested(step.request) <= amount
            for step in pod.steps
            for resource, amount in most.items()
        )

    def _restart(self, resource: Resource, amount: int) -> Turn | None:
        """A container that restarts, as far as kubelet has lost its record of its devices."""
        turns = (Turn(pod, step) for pod in self.restarting for step in pod.steps)
        served = set(self.holdings.recent(resource).values())
        return next(
            (
                turn
                for turn in turns
                if resource.requested(turn.step.request) == amount and _holder(turn) not in served
            ),
            None,
        )

    def _denial(
        self, turn: Turn | None, resource: Resource, ids: tuple[str, ...]
    ) -> AllocationError | None:
        table = self.tables[resource]
        unknown = [one for one in ids if one not in table.owner]
        if unknown:
            sentence = (
                f"device {unknown[0]} belongs to no GPU of this node; the GPU may have been removed"
            )
            return AllocationError(AllocationErrorCode.UNKNOWN_DEVICE, sentence)
        gpus = tuple(sorted(table.per_device(ids)))
        return (
            self._in_use(turn, resource, ids)
            or self._closed(gpus)
            or self._displaced(resource, ids)
            or self._spans(turn, resource, gpus)
            or self._behind_several(resource, gpus)
            or self._splits(turn, resource, gpus)
            or self._room().clash(resource, gpus, turn.pod if turn else None)
        )

    def _in_use(
        self, turn: Turn | None, resource: Resource, ids: tuple[str, ...]
    ) -> AllocationError | None:
        for one in ids:
            holder = self._reserved.get((resource, one))
            if holder is not None and holder != _holder(turn):
                sentence = (
                    f"device {one} is in use by another pod, although kubelet has lost its record; "
                    "the log of the node's device plugin names the pod, whose deletion releases it"
                )
                pods = (f"{holder.namespace}/{holder.pod}",)
                return AllocationError(AllocationErrorCode.DEVICE_IN_USE, sentence, pods=pods)
        return None

    def _displaced(self, resource: Resource, ids: tuple[str, ...]) -> AllocationError | None:
        """Where a pod takes all devices that are left, kubelet asks for no preference."""
        table, taken = self.tables[resource], self.holdings.taken(resource)
        fresh = table.per_device(one for one in ids if one not in taken)
        for gpu in self.holdings.displaced if resource is Resource.MEM else ():
            free = self.holdings.free(table, gpu)
            if fresh[gpu] > free:
                sentence = (
                    f"GPU {gpu} has {free} units free: pods of the device plugin that this one"
                    " replaced use more of it than kubelet counts"
                )
                return AllocationError(AllocationErrorCode.NO_GPU_FITS, sentence, (gpu,))
        return None

    def _closed(self, gpus: tuple[GpuIndex, ...]) -> AllocationError | None:
        bad = tuple(gpu for gpu in gpus if gpu in self.closed)
        if not bad:
            return None
        verb = "is" if len(bad) == 1 else "are"
        return AllocationError(
            AllocationErrorCode.UNHEALTHY, f"{gpu_list(bad)} {verb} unhealthy", bad
        )

    def _spans(
        self, turn: Turn | None, resource: Resource, gpus: tuple[GpuIndex, ...]
    ) -> AllocationError | None:
        limit = turn.pod.gpu_count if turn else 1
        if resource is Resource.GPU or len(gpus) <= limit:
            return None
        requested = "one GPU" if limit == 1 else f"{limit} GPUs"
        sentence = (
            f"the free devices of this node are spread over {gpu_list(gpus)}, "
            f"but the pod requests a share of {requested}"
        )
        return AllocationError(AllocationErrorCode.SPANS_GPUS, sentence, gpus)

    def _behind_several(
        self, resource: Resource, gpus: tuple[GpuIndex, ...]
    ) -> AllocationError | None:
        """A program speaks to one MPS daemon, so it would see one of these GPUs."""
        modes = self.isolations
        behind = tuple(gpu for gpu in gpus if modes.get(gpu, IsolationMode.NONE).uses_mps)
        if self._one_daemon or resource is Resource.GPU or len(gpus) == 1 or not behind:
            return None
        verb = "has a daemon of its" if len(behind) == 1 else "have daemons of their"
        sentence = (
            f"{gpu_list(behind)} {verb} own for MPS, and a program connects to one daemon: "
            "a share of several GPUs needs GPUs without MPS"
        )
        return AllocationError(AllocationErrorCode.SPANS_GPUS, sentence, gpus)

    def _splits(
        self, turn: Turn | None, resource: Resource, gpus: tuple[GpuIndex, ...]
    ) -> AllocationError | None:
        settled = self._pod_gpus(turn) if turn and resource in SHARES else ()
        if turn is None or not settled or len({*settled, *gpus}) <= turn.pod.gpu_count:
            return None
        sentence = (
            f"container {turn.step.container} would get {gpu_list(gpus)}, "
            f"but its pod is on {gpu_list(settled)}"
        )
        return AllocationError(AllocationErrorCode.SPLITS_POD, sentence, gpus)


def _holder(turn: Turn | None) -> Holder:
    if turn is None:
        return NOBODY_KNOWN
    return Holder(turn.pod.namespace, turn.pod.name, turn.step.container)


def _in_order(gpus: GpuAmounts, turn: Turn | None, resource: Resource) -> GpuAmounts:
    """Exclusive GPUs in the planned order (which may be that of a ring), else by index."""
    plan = turn.step.plan.get(resource, {}) if turn and resource is Resource.GPU else {}
    order = {gpu: position for position, gpu in enumerate(plan)}
    return dict(sorted(gpus.items(), key=lambda each: (order.get(each[0], len(order)), each[0])))
