"""What recommended sizes are worth: the cluster placed anew with and without them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpucore.model import PodRequest
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.simulate.repack import gpus_in_use, overcommitted, repack
from gpucore.simulate.whatif import WhatIfPod
from gpucore.sizing.recommendation import Recommendation
from gpucore.sizing.usage_history import ALL_CONTAINERS, WorkloadKey
from gpucore.wire.constraints import all_constraints
from gpucore.wire.names import Names
from gpucore.wire.pod.controllers import controller_of, workload_of
from gpucore.wire.pod.spec import Container, Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.gangs import ClusterGangs

HOURS_A_MONTH: Final = 730


class SizesEffect(msgspec.Struct, frozen=True):
    """GPUs and pods with the sizes as they are, and with the recommended ones.

    Attributes:
        gpus: of the cluster.
        in_use: GPUs in use now.
        same_sizes: GPUs in use if the pods were placed anew with the sizes that they have.
        recommended_sizes: GPUs in use if they were placed anew with the recommended sizes.
        resized: number of running pods with a recommended size.
        waiting: number of pods that wait.
        fitting_now: of these, those that fit without a change.
        fitting_same: of these, those that fit after the pods were placed anew.
        fitting: names of those that fit with the recommended sizes; pods of a gang only where all
            of it fits.
        unplaced: running pods that found no place when they were placed anew.
        overcommitted: GPUs whose pods could use more together than the GPU has.
    """

    gpus: int
    in_use: int
    same_sizes: int
    recommended_sizes: int
    resized: int
    waiting: int
    fitting_now: int
    fitting_same: int
    fitting: tuple[str, ...]
    unplaced: tuple[str, ...]
    overcommitted: int

    @property
    def freed(self) -> int:
        """GPUs in use now that the recommended sizes would not need."""
        return self.in_use - self.recommended_sizes

    def monthly(self, price: float) -> float:
        """The price of the freed GPUs in a month of 730 hours."""
        return self.freed * price * HOURS_A_MONTH


class _Sized(NamedTuple):
    """A pod with the size that it has and the recommended one; ``extra`` is beyond the request."""

    now: WhatIfPod
    then: WhatIfPod
    extra: int

    @property
    def resized(self) -> bool:
        return self.now != self.then


def sizes_effect(
    snapshot: Snapshot, found: Sequence[Recommendation], names: Names, policy: ClusterPolicy
) -> SizesEffect:
    """Place the pods of the cluster anew, once as they are and once with the recommended sizes.

    Pods of DaemonSets, pods with claims and pods that request no GPU stay where they are.

    Raises:
        WireError: an object is none of the Kubernetes API.
    """
    sizes = {each.key: each for each in found if each.size is not None}
    pairs = list(snapshot.raw_pods())
    moved = [(pod, raw) for pod, raw in pairs if _moves(pod, raw, names)]
    running = [_sized(pod, raw, sizes, names) for pod, raw in moved]
    queue = sorted(pairs, key=lambda pair: _queue_key(pair[0]))
    waiting = [_sized(pod, raw, sizes, names) for pod, raw in queue if _waits(pod, names)]
    gangs = ClusterGangs(pod for pod, _ in pairs)
    added = [each for each in waiting if gangs.complete(each.now.name)]
    empty = _without(snapshot, {pod.uid for pod, _ in moved})
    before = candidates(snapshot, ledger_of(snapshot, names))
    after = candidates(empty, ledger_of(empty, names))
    as_is = repack(before, (), [each.now for each in added], policy)
    same = repack(after, [e.now for e in running], [e.now for e in added], policy)
    then = repack(after, [e.then for e in running], [e.then for e in added], policy)
    extra = {each.then.name: each.extra for each in (*running, *waiting)}
    return SizesEffect(
        gpus=sum(len(info.inventory.gpus) for info in before.node_infos.values() if info.inventory),
        in_use=gpus_in_use(before.node_infos.values()),
        same_sizes=same.gpus,
        recommended_sizes=then.gpus,
        resized=sum(each.resized for each in running),
        waiting=len(waiting),
        fitting_now=len(gangs.together(as_is.fitting)),
        fitting_same=len(gangs.together(same.fitting)),
        fitting=gangs.together(then.fitting),
        unplaced=tuple(sorted({*same.unplaced, *then.unplaced})),
        overcommitted=overcommitted(after, then.placements, extra),
    )


def _moves(pod: Pod, raw: bytes, names: Names) -> bool:
    request = pod_request_of(pod, names)
    if not pod.node or pod.finished or request is None or request.fault:
        return False
    controller = controller_of(raw)
    return controller is None or controller.kind != "DaemonSet"


def _waits(pod: Pod, names: Names) -> bool:
    if pod.node or pod.finished or pod.terminating or pod.gated:
        return False
    request = pod_request_of(pod, names)
    return request is not None and not request.fault


def _queue_key(pod: Pod) -> tuple[int, str, str, str]:
    """The place of a pod in kube-scheduler's queue: by priority, then by age."""
    return -pod.priority, pod.creation, pod.namespace, pod.name


def _without(snapshot: Snapshot, uids: set[str]) -> Snapshot:
    pairs = snapshot.raw_pods()
    kept = [(pod, raw) for pod, raw in pairs if pod.uid not in uids]
    raw = {**snapshot.raw, "Pod": tuple(raw for _, raw in kept)}
    return msgspec.structs.replace(snapshot, pods=tuple(pod for pod, _ in kept), raw=raw)


def _sized(
    pod: Pod, raw: bytes, sizes: Mapping[WorkloadKey, Recommendation], names: Names
) -> _Sized:
    request = pod_request_of(pod, names) or PodRequest(())
    now = WhatIfPod(f"{pod.namespace}/{pod.name}", request, all_constraints(raw))
    # The share of a sidecar keeps its size.
    holds = any(box.limits.get(names.gpu_mem) for box in pod.containers)
    known = dict(_sizes_of(pod, raw, sizes)) if holds else {}
    boxes = tuple(_resized(box, known.get(box.name), request, names) for box in pod.containers)
    if ALL_CONTAINERS in known:
        boxes = tuple(_together(pod.containers, known[ALL_CONTAINERS], request, names))
    larger = msgspec.structs.replace(pod, containers=boxes)
    wanted = pod_request_of(larger, names) or request
    limits = [each.size.limit - each.size.request for each in known.values() if each.size]
    extra = sum(limits) if known else max(request.burst - request.mem, 0)
    of_node = _requesting(now.constraints, wanted.mem, names)
    then = msgspec.structs.replace(now, pod_request=wanted, constraints=of_node)
    return _Sized(now, then, extra)


def _requesting(constraints: PodConstraints, units: int, names: Names) -> PodConstraints:
    """What kube-scheduler's own rules count of the node's resource, with other units."""
    requests = tuple(
        (name, units if name == names.gpu_mem else amount) for name, amount in constraints.requests
    )
    return msgspec.structs.replace(constraints, requests=requests)


def _sizes_of(
    pod: Pod, raw: bytes, sizes: Mapping[WorkloadKey, Recommendation]
) -> Iterator[tuple[str, Recommendation]]:
    """The recommendations for the containers of a pod, by name."""
    kind, name = workload_of(pod, controller_of(raw))
    for container in (ALL_CONTAINERS, *(box.name for box in pod.containers)):
        found = sizes.get(WorkloadKey(pod.namespace, kind, name, container))
        if found is not None:
            yield container, found


def _together(
    boxes: Sequence[Container], found: Recommendation, request: PodRequest, names: Names
) -> Iterator[Container]:
    """The first container gets the memory of all: only the sum of a pod is accounted."""
    given: Recommendation | None = found
    for box in boxes:
        if not box.limits.get(names.gpu_mem):
            yield box
        elif given is not None:
            yield _resized(box, given, request, names)
            given = None
        else:
            limits = {name: n for name, n in box.limits.items() if name != names.gpu_mem}
            yield msgspec.structs.replace(box, limits=limits)


def _resized(
    box: Container, found: Recommendation | None, request: PodRequest, names: Names
) -> Container:
    """Units are spread evenly over the GPUs of a pod, so that a pod of several gets a multiple."""
    if found is None or found.size is None or not box.limits.get(names.gpu_mem):
        return box
    count = max(request.gpu_count, 1)
    units = -(-found.size.request // count) * count
    return msgspec.structs.replace(box, limits={**box.limits, names.gpu_mem: str(units)})
