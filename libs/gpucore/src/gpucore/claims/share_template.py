"""The ResourceClaimTemplate of a converted pod: its contents, its name, and the object.

The pod carries the contents in an annotation, and the name is a hash of them. Whoever creates the
template therefore needs the pod alone, and a tenant who writes the annotation gets a template of
these few fields in the namespace of the pod and nothing else.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec

from gpucore.model import CORE_PER_GPU, IsolationMode
from gpucore.model.constraints import NO_EXECUTE, NO_SCHEDULE
from gpucore.wire.claim.devices import (
    COMPUTE,
    GPU_UUID,
    MEMORY,
    UNHEALTHY,
)
from gpucore.wire.claim.prepared import RESULTS_LIMIT
from gpucore.wire.claim.resource_slices import API_VERSION
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_DRIVER, CLAIM_MANAGER, CLAIM_TEMPLATE, MANAGED_BY

PREFIX: Final = "gpushare-"
MAX_REQUESTS: Final = 16
MAX_MIB: Final = (1 << 24) - 1
"""Of one GPU: 16 TiB."""
MAX_SECONDS: Final = (1 << 31) - 1
_NAME: Final = re.compile(rf"{PREFIX}[0-9a-f]{{16}}")
_MAX_TEXT: Final = 4096
_ISOLATION: Final = f'device.attributes["{CLAIM_DRIVER}"].isolation'

_Mib = Annotated[int, msgspec.Meta(ge=0, le=MAX_MIB)]
_Percent = Annotated[int, msgspec.Meta(ge=0, le=CORE_PER_GPU)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=RESULTS_LIMIT)]
_Effect = Annotated[str, msgspec.Meta(pattern=rf"^({NO_SCHEDULE}|{NO_EXECUTE})\Z")]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_SECONDS)]
_Modes = Annotated[tuple[IsolationMode, ...], msgspec.Meta(max_length=len(IsolationMode))]


class ShareRequest(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """What one container requests of each GPU: memory in MiB (0 for all of it), compute."""

    memory_mib: _Mib = msgspec.field(name="memoryMiB", default=0)
    compute: _Percent = 0


class Tolerance(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """A toleration of the taint of an unhealthy GPU.

    Attributes:
        effect: of the taint.
        seconds: for which a pod may stay on such a GPU; ``None`` for ever.
    """

    effect: _Effect
    seconds: _Seconds | None = None


class ShareTemplate(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """The contents of a template.

    Attributes:
        requests: of the containers, which are all on the same GPU.
        count: number of GPUs; more than 1 with one request only.
        modes: isolation modes of which the GPU must have one; empty for any.
        tolerations: of an unhealthy GPU.
    """

    requests: Annotated[
        tuple[ShareRequest, ...], msgspec.Meta(min_length=1, max_length=MAX_REQUESTS)
    ]
    count: _Count = 1
    modes: _Modes = ()
    tolerations: Annotated[tuple[Tolerance, ...], msgspec.Meta(max_length=2)] = ()

    def __post_init__(self) -> None:
        if self.count > 1 and len(self.requests) > 1:
            raise ValueError("several GPUs need one container")


def request_name(position: int) -> str:
    """Name of the request of the container at this position among those with a share."""
    return f"gpu-{position}"


def encode_contents(template: ShareTemplate) -> str:
    """The text of the annotation; equal for equal contents."""
    return msgspec.json.encode(template, order="sorted").decode()


def decode_contents(text: str) -> ShareTemplate:
    """Read the annotation of a pod, which its author may have written.

    Raises:
        WireError: it is no text of :func:`encode_contents`, or requests more than the API allows.
    """
    if len(text) > _MAX_TEXT:
        raise WireError(f"annotation {CLAIM_TEMPLATE} has more than {_MAX_TEXT} characters")
    try:
        return msgspec.json.decode(text, type=ShareTemplate)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"annotation {CLAIM_TEMPLATE}: {str(error)[:200]}") from error


def template_name(template: ShareTemplate, device_class: str) -> str:
    """Name of the template: always 25 characters, whatever the contents."""
    text = f"{device_class}\n{encode_contents(template)}"
    return PREFIX + sha256(text.encode()).hexdigest()[:16]


def is_template_name(text: str) -> bool:
    """The text can be a name of :func:`template_name`."""
    return _NAME.fullmatch(text) is not None


def template_object(template: ShareTemplate, namespace: str, device_class: str) -> dict[str, Any]:
    """The ResourceClaimTemplate."""
    labels = {MANAGED_BY: CLAIM_MANAGER}
    metadata = {"name": template_name(template, device_class), "labels": labels}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        "spec": {"metadata": {"labels": labels}, "spec": _spec(template, device_class)},
    }


def _spec(template: ShareTemplate, device_class: str) -> dict[str, Any]:
    requests = [
        {"name": request_name(place), "exactly": _exactly(template, each, device_class)}
        for place, each in enumerate(template.requests)
    ]
    devices: dict[str, Any] = {"requests": requests}
    if template.count > 1:
        devices["constraints"] = [{"distinctAttribute": GPU_UUID}]
    elif len(requests) > 1:
        devices["constraints"] = [{"matchAttribute": GPU_UUID}]
    return {"devices": devices}


def _exactly(template: ShareTemplate, request: ShareRequest, device_class: str) -> dict[str, Any]:
    found: dict[str, Any] = {"deviceClassName": device_class}
    if template.count > 1:
        found["count"] = template.count
    wanted = {MEMORY: f"{request.memory_mib}Mi"} if request.memory_mib else {}
    wanted |= {COMPUTE: str(request.compute)} if request.compute else {}
    if wanted:
        found["capacity"] = {"requests": wanted}
    if template.modes:
        found["selectors"] = [{"cel": {"expression": _expression(template.modes)}}]
    if template.tolerations:
        found["tolerations"] = [_toleration(each) for each in template.tolerations]
    return found


def _toleration(found: Tolerance) -> dict[str, Any]:
    toleration = {"key": UNHEALTHY, "operator": "Exists", "effect": found.effect}
    timed = found.seconds is not None and found.effect == NO_EXECUTE
    return toleration | ({"tolerationSeconds": found.seconds} if timed else {})


def _expression(modes: Sequence[IsolationMode]) -> str:
    """CEL; every device of the driver has the attribute."""
    texts = [f'"{mode.value}"' for mode in modes]
    if len(texts) == 1:
        return f"{_ISOLATION} == {texts[0]}"
    return f"{_ISOLATION} in [{', '.join(texts)}]"
