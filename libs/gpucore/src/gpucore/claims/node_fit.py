"""Whether the claims of a pod fit on one node: first fit in the order of the slice, as allocated.

kube-scheduler tries devices in order and goes back where a later request or a constraint fails;
so does this, within a bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.claims.device_fit import (
    Device,
    Wanted,
    devices_of,
    memory_of,
    misfit,
    missing_capacities,
    never_fits,
    wanted,
)
from gpucore.claims.selectors import Value, attributes_of, excludes_driver, select
from gpucore.model import Code, DeviceFitError, FitError, Placement
from gpucore.units import MIB, GpuIndex
from gpucore.wire.claim.claim_specs import ALL, ClaimSpec, DeviceClass, DeviceConstraint
from gpucore.wire.claim.devices import COMPUTE, MEMORY, SliceDevice
from gpucore.wire.claim.resource_slices import OtherDevice
from gpucore.wire.names import CLAIM_DRIVER

STEPS: Final = 256
"""Devices that are tried for the claims of one pod on one node, at most."""

MOST_DEVICES: Final = 32
"""Devices that kube-scheduler allocates for one claim, at most (AllocationResultsMaxSize)."""

_NEAREST: Final = (
    Code.INSUFFICIENT_CORE,
    Code.INSUFFICIENT_MEMORY,
    Code.MAX_PODS,
    Code.TAKEN_WHOLE,
    Code.UNHEALTHY,
    Code.COMPUTE_TOO_LARGE,
    Code.TOO_LARGE,
    Code.SELECTOR,
)
"""Reasons of GPUs, the one that is nearest to a fit first."""
_AMOUNTS: Final = frozenset({Code.INSUFFICIENT_CORE, Code.INSUFFICIENT_MEMORY})


class ClaimNode(msgspec.Struct, frozen=True):
    """A node and its devices by GPU, in the order of its slice; empty without a slice.

    Attributes:
        others: devices of other drivers; ``None`` where they are not known.
    """

    node_info: NodeInfo
    devices: Mapping[GpuIndex, SliceDevice] = {}
    others: tuple[OtherDevice, ...] | None = None


class ClaimRules(msgspec.Struct, frozen=True):
    """What claims of a pod request, and the classes that they name."""

    specs: tuple[ClaimSpec, ...]
    classes: Mapping[str, DeviceClass] = {}


class Need(msgspec.Struct, frozen=True):
    """One request of a claim: ways to satisfy it, and the constraints that include it.

    Attributes:
        name: of the request.
        counts: number of devices of each way; the devices of one request differ.
        aligned: values that devices of other drivers have for the attribute of a constraint.
    """

    name: str
    ways: tuple[Wanted, ...]
    counts: tuple[int, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    claim: int = 0
    aligned: tuple[tuple[str, frozenset[Value]], ...] = ()

    @property
    def count(self) -> int:
        """Number of devices of the first way."""
        return self.counts[0]


def ours(want: Wanted) -> bool:
    """The devices of the driver are not excluded; others are judged by their own driver."""
    return not excludes_driver(CLAIM_DRIVER, want.selectors)


def needs_of(rules: ClaimRules, node: ClaimNode) -> list[Need]:
    """What each request of the claims needs of this driver on this node."""
    found: list[Need] = []
    for number, spec in enumerate(rules.specs):
        for request in spec.requests:
            ways = [wanted(each, rules.classes) for each in request.choices]
            mine = tuple(each for each in ways if ours(each))
            if mine:
                rest = [each for each in spec.constraints if _names(each, request.name)]
                aligned = tuple(_aligned(rules, spec, rest, node))
                counts = tuple(_count(each, node) for each in mine)
                found.append(Need(request.name, mine, counts, tuple(rest), number, aligned))
    return found


def _names(constraint: DeviceConstraint, request: str) -> bool:
    """The constraint includes the request, or a subrequest of it (``<request>/<subrequest>``)."""
    named = {each.partition("/")[0] for each in constraint.requests}
    return not named or request in named


def _aligned(
    rules: ClaimRules, spec: ClaimSpec, constraints: Sequence[DeviceConstraint], node: ClaimNode
) -> Iterator[tuple[str, frozenset[Value]]]:
    """Values for which a device of every other driver in the constraint exists on the node."""
    for constraint in () if node.others is None else constraints:
        if constraint.distinct:
            continue
        for request in spec.requests:
            if constraint.requests and request.name not in constraint.requests:
                continue
            ways = [wanted(each, rules.classes) for each in request.choices]
            if any(map(ours, ways)) or not all(
                w.choice.device_class in rules.classes for w in ways
            ):
                continue
            yield constraint.attribute, _values(node, ways, constraint.attribute)


def _values(node: ClaimNode, ways: Sequence[Wanted], attribute: str) -> frozenset[Value]:
    found = (
        dict(each.attributes).get(attribute)
        for each in node.others or ()
        if any(not excludes_driver(each.driver, way.selectors) for way in ways)
    )
    return frozenset(value for value in found if value is not None)


def _count(want: Wanted, node: ClaimNode) -> int:
    if want.choice.count != ALL:
        return want.choice.count
    devices = node.devices.values()
    return max(sum(not never_fits(each, want) for each in devices), 1)


def refusal(node: ClaimNode, rules: ClaimRules) -> FitError | None:
    """Why the node cannot take the claims; ``None`` where it can."""
    name = node.node_info.name
    if not node.devices:
        return FitError(name, Code.NO_RESOURCE_SLICE, unresolvable=True)
    needs = needs_of(rules, node)
    devices = devices_of(node.node_info, node.devices)
    search = _Search(needs)
    if search.fits(devices):
        return None
    if search.error:
        code, detail = search.error
        return FitError(name, code, detail=detail, unresolvable=True, ends_attempt=True)
    for need in needs:
        alone = [misfit(each, need.ways[0], unit_of(node.node_info)) for each in devices]
        if all(alone) and not _other_ways(devices, need, node):
            return _of_need(node, need, [each for each in alone if each is not None])
    return _together(node, needs, devices)


def first_fit(node: ClaimNode, rules: ClaimRules) -> Placement | None:
    """What kube-scheduler allocates on the node, in the node's unit; ``None`` where it cannot.

    It takes the first devices in the order of the slice.
    """
    before, needs = devices_of(node.node_info, node.devices), needs_of(rules, node)
    after = _Search(needs).fitted(before) if needs else None
    if after is None:
        return None
    unit = unit_of(node.node_info)
    memory, core = dict[GpuIndex, int](), dict[GpuIndex, int]()
    group = list[GpuIndex]()
    for old, new in zip(before, after, strict=True):
        if new.users == old.users:
            continue
        if not new.device.shared:
            group.append(new.index)
            continue
        memory[new.index] = unit.units_for(old.free_mib - new.free_mib)
        if new.core_free < old.core_free:
            core[new.index] = old.core_free - new.core_free
    return Placement(node.node_info.name, memory, core, group=tuple(group))


def _other_ways(devices: Sequence[Device], need: Need, node: ClaimNode) -> bool:
    unit = unit_of(node.node_info)
    return any(misfit(d, way, unit) is None for way in need.ways[1:] for d in devices)


def _of_need(node: ClaimNode, need: Need, gpus: list[DeviceFitError]) -> FitError:
    codes = {gpu.code for gpu in gpus}
    code = next(each for each in _NEAREST if each in codes)
    choice = need.ways[0].choice
    if choice.memory_mib is None and code is Code.INSUFFICIENT_MEMORY:
        return _too_few(node, need.count, gpus, total=len(gpus))
    unit, first = unit_of(node.node_info), next(iter(node.devices.values()))
    mib = memory_of(choice, first) if choice.memory_mib is None else choice.memory_mib
    return FitError(
        node=node.node_info.name,
        code=code,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        unit=node.node_info.unit,
        requested=unit.units_for(mib),
        total=1,
        detail=_failed(need, node) if code is Code.SELECTOR else "",
        unresolvable=code in {Code.SELECTOR, Code.TOO_LARGE, Code.COMPUTE_TOO_LARGE},
    )


def _failed(need: Need, node: ClaimNode) -> str:
    """The terms of selectors, or the capacities, that exclude the GPUs."""
    way, devices = need.ways[0], node.devices.values()
    failed = dict.fromkeys(filter(None, (select(d, way.selectors).failed for d in devices)))
    if failed:
        return "selector " + " and ".join(failed)
    names = dict.fromkeys(name for d in devices for name in missing_capacities(d, way.choice))
    return f"requested capacity {' and '.join(names)}: GPUs have {MEMORY} and {COMPUTE}"


def _together(node: ClaimNode, needs: Sequence[Need], devices: list[Device]) -> FitError:
    """Each need fits alone: constraints keep them apart, or there are too few GPUs."""
    name = node.node_info.name
    wanted_gpus = sum(need.count for need in needs)
    loose = [msgspec.structs.replace(need, constraints=(), aligned=()) for need in needs]
    if _Search(loose).fits(devices):
        return FitError(name, Code.DEVICE_CONSTRAINT, detail=_constraints(needs), total=wanted_gpus)
    need, way = needs[0], needs[0].ways[0]
    unit = unit_of(node.node_info)
    gpus = [why for each in devices if (why := misfit(each, way, unit)) is not None]
    alone = _of_need(node, need, gpus) if gpus and len(needs) == 1 else None
    if alone and way.choice.memory_mib is not None and alone.code in _AMOUNTS:
        free = len(devices) - len(gpus)
        return msgspec.structs.replace(alone, free=free, total=need.count, unresolvable=False)
    return _too_few(node, wanted_gpus, gpus, total=len(devices))


def _too_few(
    node: ClaimNode, count: int, gpus: Sequence[DeviceFitError], *, total: int
) -> FitError:
    """Fewer GPUs are free than the claims request, of whatever size they are."""
    return FitError(
        node.node_info.name,
        Code.INSUFFICIENT_GPUS,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        unit=node.node_info.unit,
        requested=count,
        free=total - len(gpus),
        total=total,
    )


def _constraints(needs: Sequence[Need]) -> str:
    all_of = dict.fromkeys(each for need in needs for each in need.constraints)
    aligned = {name for need in needs for name, _ in need.aligned}
    return " and ".join(
        _words(each) + (" with devices of another driver" if each.attribute in aligned else "")
        for each in all_of
    )


def _words(constraint: DeviceConstraint) -> str:
    kind = "distinctAttribute" if constraint.distinct else "matchAttribute"
    return f"{kind} {constraint.attribute}"


class _Chosen(msgspec.Struct, frozen=True):
    """A device that is taken for a need."""

    need: Need
    way: Wanted
    device: Device

    def within(self, constraint: DeviceConstraint) -> bool:
        """The constraint includes the device."""
        name = self.need.name
        names = {name, f"{name}/{self.way.choice.name}"}
        return constraint in self.need.constraints and (
            not constraint.requests or not names.isdisjoint(constraint.requests)
        )

    def value(self, constraint: DeviceConstraint) -> Value | None:
        """What the constraint compares."""
        return attributes_of(self.device.device).get(constraint.attribute)


def _allowed(candidate: _Chosen, chosen: Sequence[_Chosen]) -> bool:
    """No constraint keeps the device from those that are chosen, or from other drivers' devices."""
    need = candidate.need
    return _violated(candidate, chosen) is None and all(
        candidate.value(constraint) in values
        for constraint in filter(candidate.within, need.constraints)
        for name, values in need.aligned
        if name == constraint.attribute
    )


def _violated(candidate: _Chosen, chosen: Sequence[_Chosen]) -> DeviceConstraint | None:
    """The constraint that keeps the device from those that are chosen."""
    need = candidate.need
    for constraint in filter(candidate.within, need.constraints):
        mine = candidate.value(constraint)
        others = [
            each.value(constraint)
            for each in chosen
            if each.need.claim == need.claim and each.within(constraint)
        ]
        if mine is None or (constraint.distinct and mine in others):
            return constraint
        if not constraint.distinct and any(mine != other for other in others):
            return constraint
    return None


class _Search:
    """First fit with a way back, within :data:`STEPS`.

    Attributes:
        error: what ends the search, and kube-scheduler's attempt for the pod.
    """

    def __init__(self, needs: Sequence[Need]) -> None:
        self._needs = needs
        self._steps = STEPS
        self._devices: list[Device] = []
        self._chosen: list[_Chosen] = []
        self.error: tuple[Code, str] | None = None

    def fits(self, devices: Sequence[Device]) -> bool:
        """Every need has its devices."""
        return self.fitted(devices) is not None

    def fitted(self, devices: Sequence[Device]) -> list[Device] | None:
        """The devices with what is left once every need has its own; ``None`` without a way."""
        self._devices, self._chosen = list(devices), []
        return self._devices if self._from(0) else None

    def _from(self, place: int) -> bool:
        if place == len(self._needs):
            return True
        need = self._needs[place]
        before = sum(each.need.claim == need.claim for each in self._chosen)
        return any(
            before + count <= MOST_DEVICES and self._more(place, way, count, 0)
            for way, count in zip(need.ways, need.counts, strict=True)
        )

    def _more(self, place: int, way: Wanted, count: int, first: int) -> bool:
        """``count`` more devices of the need, behind those that it has, and the needs after it."""
        if not count:
            return self._from(place + 1)
        for position in range(first, len(self._devices)):
            if self._steps <= 0:
                return False
            self._steps -= 1
            device = self._devices[position]
            candidate = _Chosen(self._needs[place], way, device)
            if not self._usable(candidate):
                if way.choice.count == ALL and not never_fits(device.device, way):
                    return False
                continue
            self._devices[position] = device.less(way.choice)
            self._chosen.append(candidate)
            if self._more(place, way, count - 1, position + 1):
                return True
            self._chosen.pop()
            self._devices[position] = device
        return False

    def _usable(self, candidate: _Chosen) -> bool:
        """The device can be taken for the need beside those that are chosen."""
        way, device = candidate.way, candidate.device
        why = misfit(device, way, MIB)
        if why is not None:
            if why.code is Code.SELECTOR:
                self._check_selectors(way, device)
            return False
        if _allowed(candidate, self._chosen):
            return True
        constraint = _violated(candidate, self._chosen)
        if constraint is not None and way.choice.count == ALL:
            words = f"{_words(constraint)} excludes GPU {device.index}"
            self._end(Code.DEVICE_CONSTRAINT, f"{words} from a request with allocationMode All")
        return False

    def _check_selectors(self, way: Wanted, device: Device) -> None:
        """End where the selectors are an error for a device that kube-scheduler looks at."""
        every = way.choice.count == ALL
        if not (every or device.device.shared or device.untouched):
            return
        found = select(device.device, way.selectors)
        if found.error:
            self._end(Code.SELECTOR, f"selector {found.failed} is an error for GPU {device.index}")

    def _end(self, code: Code, detail: str) -> None:
        self.error, self._steps = (code, detail), 0
