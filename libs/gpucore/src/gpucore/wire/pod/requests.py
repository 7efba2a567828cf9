"""GPU request of a pod, by kubelet's own formula.

Extended resources are immutable, so the specification is the only source of amounts; labels and
annotations control how the amount may be placed. A request that no node could ever fit is still a
value: its ``fault`` has the reason.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from gpucore.model import ContainerRequest, IsolationMode, PodRequest
from gpucore.units import MemoryUnit
from gpucore.wire import names as wire_names
from gpucore.wire.errors import WireError
from gpucore.wire.kept import kept_where
from gpucore.wire.names import Names
from gpucore.wire.pod.gangs import gang_fault
from gpucore.wire.pod.spec import Container, Pod
from gpucore.wire.pod.texts import Texts, texts_of
from gpucore.wire.quantity import counted, number

MOST_ANNOTATION_BYTES: Final = 256 * 1024
"""The API server refuses every write of a pod whose annotations have more, its status included."""
_OUR_BYTES: Final = 16 * 1024
"""Kept for the annotations that record GPUs; those of a usual pod take some hundred bytes."""

_ISOLATION_MODES: Final = tuple(isolation.value for isolation in IsolationMode)


def gpu_request_of(pod: Pod, names: Names) -> PodRequest | None:
    """The GPU request of ``pod`` without its CPU and host memory, or ``None`` without one.

    Raises:
        WireError: an amount is no Kubernetes quantity (the API server accepts no such pod).
    """
    texts = texts_of(pod, names)
    found = None if texts is None else request_in(texts, names)
    if found is None or found.fault or pod.node:
        return found
    fault = _annotations_fault(pod)
    return msgspec.structs.replace(found, fault=fault) if fault else found


def annotation_bytes(annotations: Mapping[str, str]) -> int:
    """Their size as the API server counts it: the bytes of all keys and values."""
    return sum(len(key.encode()) + len(text.encode()) for key, text in annotations.items())


def _annotations_fault(pod: Pod) -> str:
    size, most = annotation_bytes(pod.annotations), MOST_ANNOTATION_BYTES - _OUR_BYTES
    if size <= most:
        return ""
    return (
        f"its annotations have {size} bytes, which leaves no room for those that record its GPUs; "
        f"use at most {most}"
    )


@kept_where(lambda texts, _: texts.is_short())
def request_in(texts: Texts, names: Names) -> PodRequest | None:
    """The request in ``texts`` of a pod; otherwise as :func:`gpu_request_of`."""
    pod = texts.pod()
    requests = tuple(container_request(container, names) for container in pod.containers)
    total = _effective(requests, pod.init_containers, names)
    if not total:
        return None
    sidecars = tuple(container_request(each, names) for each in pod.sidecars)
    inits = (container_request(each, names) for each in pod.init_containers)
    found = _shaped(pod, names, requests + sidecars if any(sidecars) else requests, total)
    return msgspec.structs.replace(found, init_gpus=max((one.gpus for one in inits), default=0))


def kai_limit(pod: Pod, unit: MemoryUnit, names: Names) -> int:
    """MiB of all containers together where one has KAI's annotation of a limit; 0 otherwise."""
    if not any(key.startswith(wire_names.KAI_CONTAINER) for key in pod.annotations):
        return 0
    limits = {each.name: _of_kai(pod, each.name) for each in pod.containers}
    if not any(limits.values()):
        return 0
    try:
        units = [counted(each.limits.get(names.gpu_mem, "0")) for each in pod.containers]
    except WireError:
        return 0
    shares = zip(pod.containers, units, strict=True)
    return sum(limits[each.name] or share * unit.mib for each, share in shares if share)


def _of_kai(pod: Pod, container: str) -> int:
    key = f"{wire_names.KAI_CONTAINER}{container}{wire_names.KAI_MEMORY_LIMIT}"
    return number(pod.annotations.get(key, ""), below=1 << 40) or 0


def container_request(container: Container, names: Names) -> ContainerRequest:
    """What one container requests."""
    limits = container.limits
    return ContainerRequest(
        mem=counted(limits.get(names.gpu_mem, "0")),
        core=counted(limits.get(names.gpu_core, "0")),
        gpus=counted(limits.get(names.gpu, "0")),
    )


def _plus(left: ContainerRequest, right: ContainerRequest) -> ContainerRequest:
    return ContainerRequest(left.mem + right.mem, left.core + right.core, left.gpus + right.gpus)


def most_of(left: ContainerRequest, right: ContainerRequest) -> ContainerRequest:
    """The larger amount of each resource."""
    return ContainerRequest(
        max(left.mem, right.mem), max(left.core, right.core), max(left.gpus, right.gpus)
    )


def _effective(
    requests: Sequence[ContainerRequest], inits: Sequence[Container], names: Names
) -> ContainerRequest:
    """Largest of: containers with all sidecars; each init container with the sidecars before it."""
    running, peak = ContainerRequest(), ContainerRequest()
    for container in inits:
        request = container_request(container, names)
        if container.is_sidecar:
            running = _plus(running, request)
            peak = most_of(peak, running)
        else:
            peak = most_of(peak, _plus(running, request))
    for request in requests:
        running = _plus(running, request)
    return most_of(peak, running)


def _shaped(
    pod: Pod, names: Names, requests: tuple[ContainerRequest, ...], total: ContainerRequest
) -> PodRequest:
    gpus, policy, isolation = _gpus(pod, names), _policy(pod), _isolation(pod)
    burst = _burst(pod, total)
    topology = pod.annotations.get(wire_names.TOPOLOGY, "").replace("_", "-")
    unrecordable = _spread_fault(requests, total, gpus or 1) or _reuse_fault(pod, names, gpus or 1)
    return PodRequest(
        containers=requests,
        mem=total.mem,
        core=total.core,
        gpus=total.gpus,
        # A pod that no scheduler placed has one GPU, of which its annotations can record all.
        gpu_count=1 if unrecordable else gpus or 1,
        whole_device=_wants_whole_device(pod),
        isolation=_demanded(IsolationMode.parse(isolation) or IsolationMode.NONE, burst),
        burst=burst or 0,
        policy=policy if policy in wire_names.POLICY_NAMES else "",
        topology=topology if topology in wire_names.TOPOLOGY_NAMES else "",
        fault=_fault(total, gpus, isolation, names)
        or unrecordable
        or _policy_fault(policy, topology)
        or _burst_fault(pod, total, burst)
        or gang_fault(pod),
    )


def _gpus(pod: Pod, names: Names) -> int | None:
    """GPUs to spread over; ``None`` where the label is no positive number."""
    text = pod.labels.get(names.gpu_count)
    return 1 if text is None else number(text, below=1 << 10) or None


def _policy(pod: Pod) -> str:
    return pod.annotations.get(wire_names.POLICY, "")


def _isolation(pod: Pod) -> str:
    return pod.annotations.get(wire_names.ISOLATION, IsolationMode.NONE.value)


def _burst(pod: Pod, total: ContainerRequest) -> int | None:
    """Units of the pod's memory limit, 0 if it equals the request; ``None`` if it cannot be met."""
    text = pod.annotations.get(wire_names.MEMORY_LIMIT)
    limit = total.mem if text is None else number(text, below=1 << 40)
    if limit is None or limit < total.mem or (text is not None and not total.mem):
        return None
    return limit if limit > total.mem else 0


def _burst_fault(pod: Pod, total: ContainerRequest, burst: int | None) -> str:
    if burst is not None:
        return ""
    text = pod.annotations[wire_names.MEMORY_LIMIT][:40]
    needed = f"use a number of units from {total.mem} on" if total.mem else "it requests no memory"
    return f"its annotation {wire_names.MEMORY_LIMIT} is {text!r}: {needed}"


def _demanded(isolation: IsolationMode, burst: int | None) -> IsolationMode:
    """Only the driver can give more than the share without taking it from others."""
    if not burst or isolation.uses_driver:
        return isolation
    return IsolationMode.DRIVER_MPS if isolation.uses_mps else IsolationMode.DRIVER


def _wants_whole_device(pod: Pod) -> bool:
    return pod.labels.get(wire_names.LABEL_REQUIRE_WHOLE) == wire_names.REQUIRE_WHOLE_DEVICE


def _fault(total: ContainerRequest, gpus: int | None, isolation: str, names: Names) -> str:
    if total.gpus and (total.mem or total.core):
        return "it requests both exclusive GPUs and shares; request only one"
    if gpus is None:
        return f"its label {names.gpu_count} is not a number of GPUs from 1 to 1023"
    if IsolationMode.parse(isolation) is None:
        return f"its isolation {isolation[:40]!r} is unknown; use {' or '.join(_ISOLATION_MODES)}"
    return ""


def _spread_fault(
    requests: tuple[ContainerRequest, ...], total: ContainerRequest, gpus: int
) -> str:
    """The annotations name a GPU by what a container has of it, and no init container."""
    if gpus == 1:
        return ""
    for words, name in (("memory", "mem"), ("compute", "core")):
        parts = sum(getattr(request, name) for request in requests)
        if parts < gpus and parts < getattr(total, name):
            return (
                f"over {gpus} GPUs its containers request {words} of {parts}, less than 1 on each"
                " GPU, and an init container requests more; request at least 1 on each"
            )
    return ""


def _reuse_fault(pod: Pod, names: Names, gpus: int) -> str:
    """A container gets any of the devices that the init container before it had.

    kubelet asks the plugin for no preference where these are more than enough, so that their GPUs
    are left to chance.
    """
    if gpus == 1:
        return ""
    containers = [(each, not each.is_sidecar) for each in pod.init_containers]
    containers += [(each, False) for each in pod.containers]
    for words, name in (("memory", names.gpu_mem), ("compute", names.gpu_core)):
        requests = [(counted(each.limits.get(name, "0")), init) for each, init in containers]
        for (before, init), (after, _) in pairwise(each for each in requests if each[0]):
            if init and after < before:
                return (
                    f"over {gpus} GPUs an init container requests {words} of {before}, and the "
                    f"container after it {after}: request no more in the init container"
                )
    return ""


def _policy_fault(policy: str, topology: str) -> str:
    for kind, text, known in (
        ("policy", policy, wire_names.POLICY_NAMES),
        ("topology policy", topology, wire_names.TOPOLOGY_NAMES),
    ):
        if text and text not in known:
            return f"its {kind} {text[:40]!r} is unknown; use one of {', '.join(known)}"
    return ""
