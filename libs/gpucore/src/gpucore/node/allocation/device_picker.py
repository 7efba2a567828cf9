"""Choice of GPUs without a valid plan: best fit over the devices that are free on the node.

A GPU fits when it has enough free devices for the pod's whole part, in every resource of the
request, so that the pod is not split over GPUs at its second container. Devices planned for other
pending pods are avoided while any other GPU fits.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from gpucore.accounting.device_info import MPS_CLIENTS
from gpucore.model import GpuAmounts, IsolationMode
from gpucore.node.allocation.admission_queue import AdmissionQueue
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode, gpu_list
from gpucore.node.allocation.device_ids import SHARES, DeviceTable, Resource
from gpucore.node.allocation.expected import Expected
from gpucore.node.allocation.holdings import NOBODY_KNOWN, Holder, Holdings
from gpucore.units import GpuIndex
from gpucore.wire.pod.placements import split_evenly


class NodeDevices(NamedTuple):
    """What is known of the node's GPUs beside kubelet's question.

    Attributes:
        closed: GPUs that give nothing.
        single: GPUs that one pod at a time may use (MIG instances).
        isolation modes: what enforces shares on each GPU.
        alone: namespace and name of the pods whose shares have their GPUs to themselves.
    """

    tables: Mapping[Resource, DeviceTable]
    holdings: Holdings
    queue: AdmissionQueue
    closed: frozenset[GpuIndex]
    single: frozenset[GpuIndex]
    isolations: Mapping[GpuIndex, IsolationMode]
    alone: AbstractSet[tuple[str, str]]

    def clash(
        self, resource: Resource, gpus: Collection[GpuIndex], pod: Expected | None
    ) -> AllocationError | None:
        """Whole and shared do not mix; nor is a share put where it is not enforced as demanded.

        A MIG instance is used alone: CUDA shows a process no GPU beside it.
        """
        instances = self.single.intersection(gpus)
        if instances and len(gpus) > 1:
            return _beside_others(instances)
        shared = resource in SHARES
        others = (Resource.GPU,) if shared else SHARES
        for gpu in gpus:
            denial = self._unenforced(gpu, pod) or self._crowded(gpu, pod) if shared else None
            if denial is not None:
                return denial
            holders = self._holders(others, gpu)
            if holders:
                return _clash(gpu, shared=shared, holders=holders)
            denial = self._not_alone(gpu, pod)
            if denial is not None:
                return denial
        return None

    def _not_alone(self, gpu: GpuIndex, pod: Expected | None) -> AllocationError | None:
        """One of two pods must have the GPU to itself; a MIG instance is used alone."""
        mine = (pod.namespace, pod.name) if pod else NOBODY_KNOWN[:2]
        others = [each for each in self._holders(SHARES, gpu) if each[:2] != mine]
        taken = gpu in self.single or any(each[:2] in self.alone for each in others)
        if not others or not (taken or (pod and pod.alone)):
            return None
        return _clash(gpu, shared=taken, holders=others)

    def _unenforced(self, gpu: GpuIndex, pod: Expected | None) -> AllocationError | None:
        demanded = pod.pod_request.isolation if pod else IsolationMode.NONE
        isolation = self.isolations.get(gpu, IsolationMode.NONE)
        if isolation.gives(demanded):
            return None
        burst = pod.pod_request.burst if pod else 0
        why = " (its annotation gpushare/memory-limit needs it)" if burst else ""
        sentence = (
            f"GPU {gpu} has isolation mode {isolation.value}, but the pod demands "
            f"{demanded.value}{why}"
        )
        return AllocationError(AllocationErrorCode.ISOLATION_MODE_MISSING, sentence, (gpu,))

    def _crowded(self, gpu: GpuIndex, pod: Expected | None) -> AllocationError | None:
        """Maximum number of clients of a daemon; every pod is at least one."""
        if not self.isolations.get(gpu, IsolationMode.NONE).uses_mps:
            return None
        pods = {holder[:2] for holder in self._holders(SHARES, gpu)}
        if pod is not None:
            pods.discard((pod.namespace, pod.name))
        if len(pods) < MPS_CLIENTS:
            return None
        sentence = f"GPU {gpu} has {len(pods)} pods, the maximum for one MPS daemon"
        return AllocationError(AllocationErrorCode.MAX_PODS, sentence, (gpu,))

    def _holders(self, resources: Iterable[Resource], gpu: GpuIndex) -> list[Holder]:
        found = {h for each in resources for h in self.holdings.holders(self.tables[each], gpu)}
        return sorted(found)

    def promised(self, resource: Resource, besides: Expected | None) -> Counter[GpuIndex]:
        """What pods that kubelet has yet to call for, other than ``besides``, were promised."""
        total: Counter[GpuIndex] = Counter()
        for pod in self.queue.unserved():
            if besides is None or pod.uid != besides.uid:
                for step in pod.steps:
                    total.update(step.plan.get(resource, {}))
                if pod.alone or (besides and besides.alone):
                    gpus = {
                        gpu for step in pod.steps for plan in step.plan.values() for gpu in plan
                    }
                    total.update({gpu: len(self.tables[resource].ids.get(gpu, ())) for gpu in gpus})
        return total


def _clash(gpu: GpuIndex, *, shared: bool, holders: Iterable[Holder]) -> AllocationError:
    others = {each[:2] for each in holders}
    pods = tuple(sorted(f"{namespace}/{name}" for namespace, name in others if name))
    if shared:
        sentence = f"GPU {gpu} is used exclusively by another pod"
        return AllocationError(AllocationErrorCode.TAKEN_WHOLE, sentence, (gpu,), pods)
    count = "one other pod" if len(others) == 1 else f"{len(others)} other pods"
    sentence = f"GPU {gpu} is shared by {count}"
    return AllocationError(AllocationErrorCode.SHARED_GPU, sentence, (gpu,), pods)


def _beside_others(instances: Iterable[GpuIndex]) -> AllocationError:
    gpus = tuple(sorted(instances))
    noun = "is a MIG instance" if len(gpus) == 1 else "are MIG instances"
    sentence = (
        f"{gpu_list(gpus)} {noun}, and a process uses no GPU beside a MIG instance: "
        "a container with several GPUs needs GPUs without MIG"
    )
    return AllocationError(AllocationErrorCode.MIG_INSTANCE, sentence, gpus)


class DevicePicker(NamedTuple):
    """One choice: an amount of a resource, from the ids that kubelet lists as available.

    Attributes:
        available: number of ids of each GPU that kubelet could take.
    """

    room: NodeDevices
    table: DeviceTable
    amount: int
    available: Counter[GpuIndex]

    def exactly(self, plan: GpuAmounts, pod: Expected | None) -> GpuAmounts | AllocationError:
        """The plan, if every GPU of it fits and may be used."""
        clash = self.room.clash(self.table.resource, plan, pod)
        if clash is not None:
            return clash
        short = [gpu for gpu, amount in plan.items() if self.available[gpu] < amount]
        if not short:
            return plan
        return self._too_few_free({self.table.resource: max(plan.values())}, short, pod)

    def on(self, gpus: tuple[GpuIndex, ...], pod: Expected | None) -> GpuAmounts | AllocationError:
        """The amount spread evenly over ``gpus``."""
        return self.exactly(split_evenly([self.amount], gpus).get(0, {}), pod)

    def anywhere(self, pod: Expected | None) -> GpuAmounts | AllocationError:
        """Best fit: the GPUs with the fewest sufficient free devices, lowest index first."""
        count = pod.gpu_count if pod else 1
        fitting = self._fitting(pod, leave_promised=True)
        if len(fitting) < count:
            fitting = self._fitting(pod, leave_promised=False)
        if len(fitting) < count:
            return (
                self._unfit(pod)
                or self._unusable(pod)
                or self._too_few_free(self._need(pod), tuple(self.table.ids), pod)
            )
        kind = Resource.MEM if pod and pod.pod_request.mem else self.table.resource
        chosen = sorted(fitting, key=lambda gpu: (self._free(kind, gpu), gpu))[:count]
        return self.on(tuple(sorted(chosen)), pod)

    def whole(
        self, pod: Expected | None, plan: GpuAmounts, required: tuple[GpuIndex, ...]
    ) -> GpuAmounts | AllocationError:
        """Exclusive GPUs: those of the plan that can be had, of the pod, then the lowest free."""
        free = self._fitting(pod, leave_promised=False)
        wanted = [gpu for gpu in plan if gpu in free]
        unpromised = self.room.promised(Resource.GPU, pod)
        steps = pod.steps if pod else ()
        own = {gpu for step in steps for gpu in step.plan.get(Resource.GPU, {})}
        rest = sorted(free, key=lambda gpu: (gpu not in own, unpromised[gpu] > 0, gpu))
        chosen = list(dict.fromkeys((*required, *wanted, *rest)))[: self.amount]
        if len(chosen) < self.amount:
            return self._unusable(pod) or self._too_few_gpus(len(chosen))
        return dict.fromkeys(chosen, 1)

    def _several(self, pod: Expected | None) -> bool:
        """Whether the container gets several GPUs."""
        if self.table.resource is Resource.GPU:
            return self.amount > 1
        return pod is not None and pod.gpu_count > 1

    def _unusable(self, pod: Expected | None) -> AllocationError | None:
        """The reason where only MIG instances are left for a container with several GPUs."""
        left = [gpu for gpu in self.table.ids if gpu in self.room.single and self.available[gpu]]
        return _beside_others(left) if left and self._several(pod) else None

    def _unfit(self, pod: Expected | None) -> AllocationError | None:
        """A more precise reason than too few free devices."""
        clashes = (self.room.clash(self.table.resource, (gpu,), pod) for gpu in self.table.ids)
        reasons = {AllocationErrorCode.ISOLATION_MODE_MISSING, AllocationErrorCode.MAX_PODS}
        return next((each for each in clashes if each and each.code in reasons), None)

    def _need(self, pod: Expected | None) -> Mapping[Resource, int]:
        """What one GPU must hold of each resource that the pod requests."""
        return {each: amount for each in SHARES if (amount := self._share(pod, each))}

    def _share(self, pod: Expected | None, resource: Resource) -> int:
        """What one GPU must hold of ``resource`` for the pod as a whole."""
        if resource is Resource.GPU:
            return 1
        if pod is None:
            return self.amount if resource is self.table.resource else 0
        total = pod.pod_request.mem if resource is Resource.MEM else pod.pod_request.core
        return -(-total // pod.gpu_count)

    def _fitting(self, pod: Expected | None, *, leave_promised: bool) -> list[GpuIndex]:
        kinds = SHARES if self.table.resource in SHARES else (Resource.GPU,)
        several = self._several(pod)
        promised = {
            each: self.room.promised(each, pod) if leave_promised else Counter() for each in kinds
        }
        return [
            gpu
            for gpu in self.table.ids
            if gpu not in self.room.closed
            and not (several and gpu in self.room.single)
            and self.room.clash(self.table.resource, (gpu,), pod) is None
            and all(
                self._free(each, gpu) - promised[each][gpu] >= self._share(pod, each)
                for each in kinds
            )
        ]

    def _free(self, resource: Resource, gpu: GpuIndex) -> int:
        if resource is self.table.resource:
            return self.available[gpu]
        return self.room.holdings.free(self.room.tables[resource], gpu)

    def _too_few_free(
        self, need: Mapping[Resource, int], gpus: Collection[GpuIndex], pod: Expected | None
    ) -> AllocationError:
        requested = " and ".join(f"{amount} of {each.value}" for each, amount in need.items())
        figures = ", ".join(
            f"GPU {gpu} has {self._left(gpu, need, pod)} free"
            for gpu in sorted(gpus)
            if gpu in self.table.ids
        )
        sentence = f"no GPU has {requested} free: {figures}"
        return AllocationError(AllocationErrorCode.NO_GPU_FITS, sentence, tuple(sorted(gpus)))

    def _left(self, gpu: GpuIndex, kinds: Iterable[Resource], pod: Expected | None) -> str:
        """``3 of 15 and 40 of 100``; nothing is left of a GPU that the pod may not use."""
        shut = gpu in self.room.closed or self.room.clash(self.table.resource, (gpu,), pod)
        free = {each: 0 if shut else self._free(each, gpu) for each in kinds}
        totals = {each: len(self.room.tables[each].ids[gpu]) for each in free}
        return " and ".join(f"{free[each]} of {totals[each]}" for each in free)

    def _too_few_gpus(self, free: int) -> AllocationError:
        gpus = tuple(sorted(self.table.ids))
        sentence = (
            f"{free} of {len(gpus)} GPUs are free, and the container requests {self.amount} "
            "exclusive GPUs"
        )
        return AllocationError(AllocationErrorCode.NO_GPU_FITS, sentence, gpus)
