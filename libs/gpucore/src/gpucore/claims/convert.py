"""Pods of the device plugin as pods with claims: the same share, requested the other way.

All containers of a pod get shares of one GPU, as from the extender. An init container uses the
share of the largest container, which is as large as the larger of the two. Requests that only the
extender or the device plugin can serve (gangs, memory beyond the share) are not converted; the
reason is a value.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product, repeat
from typing import Any, Final

import msgspec

from gpucore.claims.share_template import (
    MAX_MIB,
    MAX_SECONDS,
    ShareRequest,
    ShareTemplate,
    Tolerance,
    decode_contents,
    encode_contents,
    request_name,
    template_name,
)
from gpucore.model import CORE_PER_GPU, ContainerRequest, IsolationMode, PodRequest
from gpucore.model.constraints import NO_EXECUTE, NO_SCHEDULE, Taint
from gpucore.scheduling.device_fit import isolates
from gpucore.units import MemoryUnit
from gpucore.wire.claim.devices import UNHEALTHY
from gpucore.wire.errors import decoded
from gpucore.wire.json_patches import ANNOTATIONS, Change, entry, set_entries
from gpucore.wire.names import CLAIM_TEMPLATE, Names
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.requests import container_request, gpu_request_of, kai_limit, most_of
from gpucore.wire.pod.spec import Pod, decode_pod
from gpucore.wire.quantity import amount, counted, exact
from gpucore.wire.tolerations import TolerationObject, toleration_of

CLAIM: Final = "gpushare"
"""Name of the claim in the pod."""
_BEYOND_SHARE: Final = "memory beyond the share is given by the device plugin only"
_BODY: Final = msgspec.json.Decoder(dict[str, Any])


class _Timed(TolerationObject, rename="camel"):
    toleration_seconds: int | None = None


class ClaimRequests(msgspec.Struct, frozen=True):
    """How pods are converted.

    Attributes:
        unit: in which old manifests count memory.
        device_class: of shares.
    """

    names: Names
    unit: MemoryUnit
    device_class: str = "gpushare"


class Conversion(msgspec.Struct, frozen=True):
    """The converted pod, or why it stays as it is.

    Attributes:
        template: contents of its ResourceClaimTemplate; ``None`` where it is not converted.
        changes: JSON patch of the pod.
        obstacle: why it requests shares and is not converted; empty otherwise.
    """

    template: ShareTemplate | None = None
    changes: tuple[Change, ...] = ()
    obstacle: str = ""


def convert(raw: bytes | msgspec.Raw, how: ClaimRequests) -> Conversion:
    """Convert a pod, or the template of one.

    Raises:
        WireError: the bytes are no pod, or an amount is no quantity.
    """
    pod = decode_pod(raw)
    request = gpu_request_of(pod, how.names)
    if request is None or (request.gpus and not request.fault):
        return Conversion()
    if obstacle := conversion_obstacle(pod, request):
        return Conversion(obstacle=obstacle)
    try:
        body = decoded(_BODY, raw, "no pod")
        template, place = _template(pod, request, how, _gpu_tolerations(body["spec"]))
        _refuse_twice(body)
        _refuse_fractions(body, how.names)
    except (msgspec.MsgspecError, ValueError) as error:
        return Conversion(obstacle=str(error))
    return Conversion(template, tuple(_changes(body, template, place, how)))


def conversion_obstacle(pod: Pod, request: PodRequest) -> str:
    """Why a pod that requests shares is not converted; empty where it may be."""
    if request.fault:
        return request.fault
    if gang_of(pod) is not None:
        return "pods of a gang are placed by the extender only"
    if not request.mem and not request.whole_device:
        return "a share of compute alone is placed by the extender only"
    if request.burst and not request.whole_device:
        return _BEYOND_SHARE
    return _obstacle_of_several(request)


def _obstacle_of_several(request: PodRequest) -> str:
    if request.mem % request.gpu_count or request.core % request.gpu_count:
        return f"the amount does not divide evenly over {request.gpu_count} GPUs"
    if request.gpu_count > 1 and request.isolation.uses_mps:
        return "several GPUs have no isolation mode with MPS, because a program uses one MPS daemon"
    return ""


def _template(
    pod: Pod, request: PodRequest, how: ClaimRequests, tolerations: tuple[Tolerance, ...]
) -> tuple[ShareTemplate, int]:
    """The contents, and the position of the request that init containers use.

    Raises:
        ValueError: the claim would be more than the API allows.
    """
    ending = [found for box in pod.containers if (found := container_request(box, how.names))]
    sidecars = [found for box in pod.sidecars if (found := container_request(box, how.names))]
    containers = [*ending, *sidecars]
    if not containers:
        raise ValueError("only init containers request a share")
    if (
        not request.whole_device
        and kai_limit(pod, how.unit, how.names) > request.mem * how.unit.mib
    ):
        raise ValueError(_BEYOND_SHARE)
    if len(containers) > 1 and (request.gpu_count > 1 or request.whole_device):
        kind = "a GPU of its own needs" if request.whole_device else "several GPUs need"
        raise ValueError(f"{kind} one container")
    most = _init(pod, how.names)
    if most and not ending:
        raise ValueError("an init container would use the share of a sidecar that runs beside it")
    place = max(range(len(ending)), key=lambda i: (ending[i].mem, ending[i].core), default=0)
    containers[place] = most_of(containers[place], most)
    requests = tuple(_request(container, request, how.unit) for container in containers)
    template = ShareTemplate(requests, request.gpu_count, _modes(request), tolerations)
    return decode_contents(encode_contents(template)), place


def _gpu_tolerations(spec: Mapping[str, Any]) -> tuple[Tolerance, ...]:
    """Tolerations that name the taint of an unhealthy GPU, in the decoded ``spec`` of a pod.

    A toleration of every taint is meant for nodes, and gives a pod no unhealthy GPU.

    Raises:
        msgspec.ValidationError: they are no tolerations.
    """
    found = msgspec.convert(spec.get("tolerations") or [], list[_Timed])
    return tuple(_by_effect([each for each in found if each.key == UNHEALTHY]))


def _by_effect(tolerations: Sequence[_Timed]) -> Iterator[Tolerance]:
    """One for each effect, with the shortest time, which counts for Kubernetes too."""
    for effect in (NO_EXECUTE, NO_SCHEDULE):
        taint = Taint(UNHEALTHY, "true", effect)
        matching = [each for each in tolerations if toleration_of(each).tolerates(taint)]
        times = [t for each in matching if (t := each.toleration_seconds) is not None]
        if matching:
            yield Tolerance(effect, min(max(min(times), 0), MAX_SECONDS) if times else None)


def _modes(request: PodRequest) -> tuple[IsolationMode, ...]:
    """The modes of the GPUs that the extender would take; empty where it would take any.

    For several GPUs they are always given: ResourceSlices have ``mig`` in place of a mode, and CUDA
    shows a process one MIG instance.
    """
    if request.isolation is IsolationMode.NONE and request.gpu_count == 1:
        return ()
    return tuple(mode for mode in IsolationMode if isolates(mode, request))


def _refuse_twice(body: Mapping[str, Any]) -> None:
    claims: Sequence[Mapping[str, Any]] = body["spec"].get("resourceClaims") or ()
    if any(each.get("name") == CLAIM for each in claims):
        raise ValueError(f"the pod has a claim of the name {CLAIM} already")


def _refuse_fractions(body: Mapping[str, Any], names: Names) -> None:
    """The API server takes whole numbers of an extended resource; a claim would hide the others."""
    for box in (
        *(body["spec"].get("containers") or ()),
        *(body["spec"].get("initContainers") or ()),
    ):
        resources: Mapping[str, Any] = box.get("resources") or {}
        for kind, name in product(("limits", "requests"), (names.gpu_mem, names.gpu_core)):
            text = str((resources.get(kind) or {}).get(name, "0"))
            if exact(text)[1] != 1:
                refused = f"{name}: {text} is no whole number, which the API server rejects"
                raise ValueError(f"{refused}: write {amount(text)}")


def _request(container: ContainerRequest, request: PodRequest, unit: MemoryUnit) -> ShareRequest:
    core = container.core // request.gpu_count
    if core > CORE_PER_GPU:
        raise ValueError("a container requests more than 100 percent of one GPU")
    if request.whole_device:
        return ShareRequest(compute=core)
    if not container.mem:
        raise ValueError("a container requests compute without memory")
    mib = container.mem // request.gpu_count * unit.mib
    if mib > MAX_MIB:
        raise ValueError(f"a container requests more than {MAX_MIB} MiB of one GPU")
    return ShareRequest(mib, core)


def _init(pod: Pod, names: Names) -> ContainerRequest:
    """The largest amounts of init containers that end before the containers start."""
    inits = (container_request(box, names) for box in pod.init_containers if not box.is_sidecar)
    return reduce(most_of, inits, ContainerRequest())


def _changes(
    body: dict[str, Any], template: ShareTemplate, init: int, how: ClaimRequests
) -> Iterator[Change]:
    spec = body["spec"]
    claims: Sequence[Mapping[str, Any]] = spec.get("resourceClaims") or ()
    places = iter(range(len(template.requests)))
    for key in ("containers", "initContainers"):
        for position, box in enumerate(spec.get(key) or ()):
            path = f"/spec/{key}/{position}/resources"
            sidecar = key == "containers" or box.get("restartPolicy") == "Always"
            yield from _of_container(box, path, how.names, places if sidecar else repeat(init))
    name = template_name(template, how.device_class)
    reference = {"name": CLAIM, "resourceClaimTemplateName": name}
    yield _appended("/spec/resourceClaims", claims, reference)
    present: Mapping[str, Any] = (body.get("metadata") or {}).get("annotations") or {}
    yield from set_entries(ANNOTATIONS, present, {CLAIM_TEMPLATE: encode_contents(template)})


def _of_container(
    box: Mapping[str, Any], path: str, names: Names, places: Iterator[int]
) -> Iterator[Change]:
    resources: Mapping[str, Any] = box.get("resources") or {}
    ours = (names.gpu_mem, names.gpu_core)
    limits = resources.get("limits") or {}
    shares = any(counted(str(limits.get(name, "0"))) for name in ours)
    for kind in ("limits", "requests"):
        for name in ours:
            if name in (resources.get(kind) or {}):
                yield {"op": "remove", "path": entry(f"{path}/{kind}", name)}
    if shares:
        reference = {"name": CLAIM, "request": request_name(next(places))}
        yield _appended(f"{path}/claims", resources.get("claims") or (), reference)


def _appended(path: str, present: Sequence[Any], item: Mapping[str, Any]) -> Change:
    if present:
        return {"op": "add", "path": f"{path}/-", "value": item}
    return {"op": "add", "path": path, "value": [item]}
