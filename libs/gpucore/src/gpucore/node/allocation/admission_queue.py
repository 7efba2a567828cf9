"""Pods that kubelet has yet to admit, in the order in which it admits them.

A call of kubelet names no pod. But kubelet admits pods one at a time, in the order in which a watch
with the field selector ``spec.nodeName`` delivers them, and container by container; after a restart
in order of creation. So the next call is for the pod in progress, else for the first pending pod
whose next container requests exactly that amount.

A wrong guess is possible only between equal amounts (kubelet rejected a pod before it allocated
devices); kubelet's allocations, passed to :meth:`AdmissionQueue.sync_from_kubelet`, correct it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpucore.node.allocation.device_ids import DeviceTable, Resource
from gpucore.node.allocation.expected import Expected, ExpectedContainer
from gpucore.node.allocation.holdings import Held
from gpucore.units import GpuIndex, PodUid


class Turn(NamedTuple):
    """One container of one pod whose turn it is."""

    pod: Expected
    step: ExpectedContainer


class _Waiting:
    """A pod in the queue, with what its containers were given so far."""

    def __init__(self, pod: Expected) -> None:
        self.pod = pod
        self.given: dict[str, dict[Resource, tuple[str, ...]]] = {}
        self.given_at = 0
        self.passed_over = False

    def next_step(self, served: Collection[Resource]) -> ExpectedContainer | None:
        return next((step for step in self.pod.steps if self.missing(step, served)), None)

    def missing(self, step: ExpectedContainer, served: Collection[Resource]) -> list[Resource]:
        if step.init and self._containers_begun():
            return []
        given = self.given.get(step.container, {})
        return [each for each in served if each.requested(step.request) and each not in given]

    def still_given(
        self, owner: Mapping[tuple[Resource, str], tuple[str, str]], *, requested_at: int
    ) -> dict[str, dict[Resource, tuple[str, ...]]]:
        """What was given, is not another pod's, and may be missing from kubelet's list.

        Kubelet lists late, and most kubelets do not list init containers.
        """
        pod = (self.pod.namespace, self.pod.name)
        late = self.given_at > requested_at
        names = {step.container for step in self.pod.steps if step.init or late}
        return {
            container: {
                resource: ids
                for resource, ids in row.items()
                if all(owner.get((resource, one), pod) == pod for one in ids)
            }
            for container, row in self.given.items()
            if container in names
        }

    def _containers_begun(self) -> bool:
        """Kubelet may omit an init container from its list, but it came before these."""
        return any(self.given.get(step.container) for step in self.pod.steps if not step.init)

    def ids(self, resource: Resource) -> tuple[str, ...]:
        return tuple(one for row in self.given.values() for one in row.get(resource, ()))


class AdmissionQueue:
    """The pods of this node that kubelet has yet to admit. Not safe for several threads."""

    def __init__(self, served: Collection[Resource]) -> None:
        self._served = tuple(served)
        self._waiting: dict[PodUid, _Waiting] = {}
        self._active: PodUid | None = None

    def see(self, pod: Expected) -> None:
        """A pod arrived or changed; one that no longer waits leaves the queue."""
        if not pod.waiting:
            self.drop(pod.uid)
        elif pod.uid in self._waiting:
            self._waiting[pod.uid].pod = pod
        else:
            self._waiting[pod.uid] = _Waiting(pod)

    def drop(self, uid: PodUid) -> None:
        """The pod is gone or has ended."""
        self._waiting.pop(uid, None)

    def unserved(self) -> list[Expected]:
        """Known pods for which kubelet has not called yet."""
        return [
            waiting.pod
            for waiting in self._waiting.values()
            if not waiting.passed_over and waiting.next_step(self._served)
        ]

    def __contains__(self, uid: object) -> bool:
        return uid in self._waiting

    def __iter__(self) -> Iterator[Expected]:
        """The pods in kubelet's order."""
        return (waiting.pod for waiting in self._waiting.values())

    def kubelet_restarted(self) -> None:
        """Kubelet starts over: what is not done yet comes in order of creation."""
        ordered = sorted(self._waiting.items(), key=lambda item: item[1].pod.creation)
        self._waiting = dict(ordered)
        self._active = None
        for waiting in self._waiting.values():
            waiting.passed_over = False

    def turn(
        self,
        resource: Resource,
        amount: int,
        may_run: Callable[[Expected], bool] = lambda _: True,
    ) -> Turn | None:
        """The container that kubelet's call is for; ``None`` when no known pod requests this.

        Args:
            may_run: false for pods that the call is not taken for.
        """
        active = self._waiting.get(self._active) if self._active else None
        first = () if active is None else (active,)
        rest = (each for each in self._waiting.values() if not each.passed_over)
        for waiting in (*first, *rest):
            found = self._matching(waiting, resource, amount)
            if found and may_run(waiting.pod):
                return found
        return None

    def _matching(self, waiting: _Waiting, resource: Resource, amount: int) -> Turn | None:
        step = waiting.next_step(self._served)
        if step is None or resource not in waiting.missing(step, self._served):
            return None
        return Turn(waiting.pod, step) if resource.requested(step.request) == amount else None

    def give(self, turn: Turn, resource: Resource, ids: tuple[str, ...], *, at: int) -> None:
        """The container whose turn it was has been given ``ids``, at a turn of the holdings."""
        waiting = self._waiting.get(turn.pod.uid)
        if waiting is None:
            return
        waiting.given.setdefault(turn.step.container, {})[resource] = ids
        waiting.given_at = at
        self._move_on(waiting)

    def _move_on(self, waiting: _Waiting) -> None:
        """Kubelet takes one pod at a time, so any other pod in progress was turned away."""
        previous = self._waiting.get(self._active) if self._active else None
        if previous is not None and previous is not waiting:
            previous.passed_over = True
        self._active = waiting.pod.uid if waiting.next_step(self._served) else None

    def turn_away(self, uid: PodUid) -> None:
        """The pod was refused, so kubelet will not call for it again."""
        if uid in self._waiting:
            self._waiting[uid].passed_over = True
        if self._active == uid:
            self._active = None

    def sync_from_kubelet(self, listed: Iterable[Held], *, requested_at: int) -> None:
        """Apply kubelet's allocations, requested at a turn of the holdings.

        Later allocations, and those of init containers, are removed only if kubelet's contradict
        them.
        """
        reported: dict[tuple[str, str], dict[str, Mapping[Resource, tuple[str, ...]]]] = {}
        for held in listed:
            reported.setdefault((held.namespace, held.name), {}).update(held.containers)
        owner = {
            (resource, one): pod
            for pod, containers in reported.items()
            for row in containers.values()
            for resource, ids in row.items()
            for one in ids
        }
        for waiting in self._waiting.values():
            pod = (waiting.pod.namespace, waiting.pod.name)
            given = reported.get(pod, {})
            kept = waiting.still_given(owner, requested_at=requested_at)
            waiting.given = kept | {
                container: kept.get(container, {}) | dict(row) for container, row in given.items()
            }

    def gpus(self, turn: Turn, table: DeviceTable) -> tuple[GpuIndex, ...]:
        """GPUs on which the pod already has some of ``table``'s resource."""
        waiting = self._waiting.get(turn.pod.uid)
        return tuple(sorted(table.per_device(waiting.ids(table.resource)))) if waiting else ()
