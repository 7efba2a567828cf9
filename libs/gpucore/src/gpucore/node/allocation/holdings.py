"""The device IDs of each pod on this node, by the latest information.

kubelet is the authority: its PodResources answer replaces everything that is older than the
question. What was handed out since stays on top, so that an answer that was under way cannot take
it back. Pods that an original plugin placed hold the GPU of their annotation, not of their ids.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from gpucore.model import GpuAmounts
from gpucore.node.allocation.device_ids import DeviceTable, Resource
from gpucore.units import GpuIndex


class Holder(NamedTuple):
    """A container of a pod; all empty until kubelet reports its owner."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


NOBODY_KNOWN = Holder()


class Held(msgspec.Struct, frozen=True):
    """What one pod holds: container to resource to ids."""

    namespace: str
    name: str
    containers: Mapping[str, Mapping[Resource, tuple[str, ...]]]

    def ids(self) -> Iterator[tuple[Resource, str]]:
        """Every id of every container, with its resource."""
        for row in self.containers.values():
            for resource, ids in row.items():
                yield from ((resource, one) for one in ids)

    @property
    def memory_ids(self) -> frozenset[str]:
        """Ids of memory of all containers, each once: an init container leaves its own to them."""
        return frozenset(one for resource, one in self.ids() if resource is Resource.MEM)


class _Entry(NamedTuple):
    holder: Holder
    turn: int


class Holdings:
    """Holder of every id that is in use. Not safe for several threads.

    Attributes:
        inherited: units on each GPU of the pods whose ids name no GPU.
        displaced: units of memory that a GPU lacks although kubelet counts their ids elsewhere.
    """

    def __init__(self) -> None:
        self.inherited: dict[tuple[str, str], GpuAmounts] = {}
        self.displaced: Counter[GpuIndex] = Counter()
        self._entries: dict[Resource, dict[str, _Entry]] = {each: {} for each in Resource}
        self._turn = 0
        self._requested_at = 0

    @property
    def turn(self) -> int:
        """Counts allocations; read it before the call to kubelet and pass it with the reply."""
        return self._turn

    def take(self, resource: Resource, ids: Iterable[str], holder: Holder) -> None:
        """Note that ``holder`` was given ``ids``."""
        self._turn += 1
        self._entries[resource] |= dict.fromkeys(ids, _Entry(holder, self._turn))

    def replace(
        self, listed: Iterable[Held], *, requested_at: int, unlisted: Collection[Holder] = ()
    ) -> None:
        """Apply kubelet's reply to a request that was sent at turn ``requested_at``.

        Entries of ``unlisted`` containers stay: kubelet does not list init containers.
        """
        self._requested_at = requested_at
        for entries in self._entries.values():
            old = [one for one, entry in entries.items() if entry.turn <= requested_at]
            for one in [one for one in old if entries[one].holder not in unlisted]:
                del entries[one]
        for held in listed:
            for container, resources in held.containers.items():
                entry = _Entry(Holder(held.namespace, held.name, container), requested_at)
                for resource, ids in resources.items():
                    self._entries[resource] |= dict.fromkeys(ids, entry)

    def inherit(
        self, gpus: dict[tuple[str, str], GpuAmounts], displaced: Counter[GpuIndex]
    ) -> None:
        """Take over the pods that an original plugin placed."""
        self.inherited, self.displaced = gpus, displaced

    def release(self, namespace: str, pod: str) -> None:
        """Forget a pod that has ended."""
        self.inherited.pop((namespace, pod), None)
        for entries in self._entries.values():
            for one in [
                each for each, entry in entries.items() if entry.holder[:2] == (namespace, pod)
            ]:
                del entries[one]

    def holders(self, table: DeviceTable, gpu: GpuIndex) -> frozenset[Holder]:
        """The holders of ids of ``gpu`` in one resource."""
        inherited = (Holder(*pod) for pod in self._inherited_on(table, gpu))
        return frozenset((*self._by_ids(table, gpu), *inherited))

    def by_pod(self, table: DeviceTable, gpu: GpuIndex) -> Counter[tuple[str, str]]:
        """How many units of ``gpu`` each pod holds, by namespace and name."""
        found = Counter((holder.namespace, holder.pod) for holder in self._by_ids(table, gpu))
        found.update(self._inherited_on(table, gpu))
        return found

    def _by_ids(self, table: DeviceTable, gpu: GpuIndex) -> Iterator[Holder]:
        """The holder of each id of ``gpu``, but for pods whose ids name no GPU."""
        entries = self._entries[table.resource]
        holders = (entries[one].holder for one in table.ids.get(gpu, ()) if one in entries)
        return (holder for holder in holders if holder[:2] not in self.inherited)

    def _inherited_on(self, table: DeviceTable, gpu: GpuIndex) -> dict[tuple[str, str], int]:
        """Units on ``gpu`` of the pods whose ids name no GPU; these have memory alone."""
        if table.resource is not Resource.MEM:
            return {}
        return {pod: gpus[gpu] for pod, gpus in self.inherited.items() if gpus.get(gpu)}

    def held_by(self, resource: Resource, namespace: str, pod: str) -> list[str]:
        """Ids of one resource that a pod holds."""
        entries = self._entries[resource]
        return [one for one, entry in entries.items() if entry.holder[:2] == (namespace, pod)]

    def rows_of(self, holder: Holder) -> dict[Resource, tuple[str, ...]]:
        """Ids of every resource that one container holds."""
        rows = {
            resource: tuple(one for one, entry in entries.items() if entry.holder == holder)
            for resource, entries in self._entries.items()
        }
        return {resource: ids for resource, ids in rows.items() if ids}

    def taken(self, resource: Resource) -> AbstractSet[str]:
        """Ids of one resource that somebody holds."""
        return self._entries[resource].keys()

    def recent(self, resource: Resource) -> dict[str, Holder]:
        """Holders of the ids that were given out after kubelet was asked for its last reply."""
        entries = self._entries[resource].items()
        return {one: entry.holder for one, entry in entries if entry.turn > self._requested_at}

    def free(self, table: DeviceTable, gpu: GpuIndex) -> int:
        """Number of free ids of ``gpu``, less the memory of pods whose ids are on other GPUs."""
        entries = self._entries[table.resource]
        lacking = self.displaced[gpu] if table.resource is Resource.MEM else 0
        return max(sum(one not in entries for one in table.ids.get(gpu, ())) - lacking, 0)
