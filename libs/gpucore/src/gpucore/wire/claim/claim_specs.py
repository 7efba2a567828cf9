"""What claims request: the specifications of ResourceClaims, templates and DeviceClasses."""

from typing import Any, Final

import msgspec

from gpucore.model.constraints import Toleration
from gpucore.units import MIB_BYTES
from gpucore.wire.claim.devices import COMPUTE, MEMORY
from gpucore.wire.errors import WireError, decoded
from gpucore.wire.objects import ObjectMetadata
from gpucore.wire.quantity import MOST, amount
from gpucore.wire.tolerations import TolerationObject, toleration_of

ALL: Final = 0
"""Number of devices of a request that takes every device that matches."""
_MAX_COUNT: Final = 1024


class DeviceChoice(msgspec.Struct, frozen=True):
    """One way to satisfy a request.

    Attributes:
        device_class: name of the DeviceClass.
        count: number of devices; 0 takes all that match.
        memory_mib: memory of each device in MiB, rounded up; ``None`` takes the default, all of it.
        core: percent of compute of each device.
        others: names of further capacities that are requested, which a device must have.
        selectors: CEL expressions that a device must satisfy.
        name: of the subrequest; empty where the request has no alternatives.
    """

    device_class: str
    count: int = 1
    memory_mib: int | None = None
    core: int = 0
    others: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    admin: bool = False
    name: str = ""


class DeviceRequest(msgspec.Struct, frozen=True):
    """One request of a claim; ``choices`` in the order of preference, usually one."""

    name: str
    choices: tuple[DeviceChoice, ...]


class DeviceConstraint(msgspec.Struct, frozen=True):
    """A rule for several devices of a claim.

    Attributes:
        attribute: fully qualified name.
        distinct: every device has another value; otherwise all have the same.
        requests: names of the requests that it applies to; empty for all.
    """

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class ClaimSpec(msgspec.Struct, frozen=True):
    """What a claim requests."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()


class DeviceClass(msgspec.Struct, frozen=True):
    """A DeviceClass; ``extended_resource`` is the resource of pods that it serves, or empty."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    resource_version: str = ""


class ClaimTemplate(msgspec.Struct, frozen=True):
    """A ResourceClaimTemplate: what the claims that are made from it request."""

    namespace: str
    name: str
    spec: ClaimSpec
    resource_version: str = ""


class _Cel(msgspec.Struct):
    expression: str = ""


class _Selector(msgspec.Struct):
    cel: _Cel | None = None


class _Capacity(msgspec.Struct):
    requests: dict[str, Any] | None = None


class _Exact(msgspec.Struct, rename="camel"):
    name: str = ""
    device_class_name: str = ""
    allocation_mode: str | None = None
    count: int | None = None
    selectors: list[_Selector] | None = None
    tolerations: list[TolerationObject] | None = None
    capacity: _Capacity | None = None
    admin_access: bool | None = None


class _Request(msgspec.Struct, rename="camel"):
    name: str = ""
    exactly: _Exact | None = None
    first_available: list[_Exact] | None = None


class _Constraint(msgspec.Struct, rename="camel"):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class _Devices(msgspec.Struct):
    requests: list[_Request] | None = None
    constraints: list[_Constraint] | None = None


class _Spec(msgspec.Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _Claim(msgspec.Struct):
    metadata: ObjectMetadata = msgspec.field(default_factory=ObjectMetadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Template(msgspec.Struct):
    metadata: ObjectMetadata = msgspec.field(default_factory=ObjectMetadata)
    spec: _Claim = msgspec.field(default_factory=_Claim)


class _ClassSpec(msgspec.Struct, rename="camel"):
    selectors: list[_Selector] | None = None
    extended_resource_name: str | None = None


class _Class(msgspec.Struct):
    metadata: ObjectMetadata = msgspec.field(default_factory=ObjectMetadata)
    spec: _ClassSpec = msgspec.field(default_factory=_ClassSpec)


_SPEC: Final = msgspec.json.Decoder(_Spec)
_CLAIM: Final = msgspec.json.Decoder(_Claim)
_TEMPLATE: Final = msgspec.json.Decoder(_Template)
_CLASS: Final = msgspec.json.Decoder(_Class)


def decode_claim_spec(raw: bytes | msgspec.Raw) -> tuple[str, str, ClaimSpec]:
    """Namespace, name and specification of a ResourceClaim.

    Raises:
        WireError: the bytes are none.
    """
    found = decoded(_CLAIM, raw, "no ResourceClaim")
    return found.metadata.namespace, found.metadata.name, _spec(found.spec)


def decode_spec(raw: bytes | msgspec.Raw) -> ClaimSpec:
    """The specification of a ResourceClaim alone.

    Raises:
        WireError: as :func:`decode_claim_spec`.
    """
    return _spec(decoded(_SPEC, raw, "no specification of a ResourceClaim"))


def decode_template(raw: bytes | msgspec.Raw) -> tuple[str, str, ClaimSpec]:
    """Namespace and name of a ResourceClaimTemplate, and the specification of its claims.

    Raises:
        WireError: as :func:`decode_claim_spec`.
    """
    found = decode_claim_template(raw)
    return found.namespace, found.name, found.spec


def decode_claim_template(raw: bytes | msgspec.Raw) -> ClaimTemplate:
    """A ResourceClaimTemplate.

    Raises:
        WireError: as :func:`decode_claim_spec`.
    """
    found = decoded(_TEMPLATE, raw, "no ResourceClaimTemplate")
    meta = found.metadata
    return ClaimTemplate(meta.namespace, meta.name, _spec(found.spec.spec), meta.resource_version)


def decode_device_class(raw: bytes | msgspec.Raw) -> DeviceClass:
    """A DeviceClass.

    Raises:
        WireError: the bytes are none.
    """
    found = decoded(_CLASS, raw, "no DeviceClass")
    spec = found.spec
    return DeviceClass(
        found.metadata.name,
        _expressions(spec.selectors),
        spec.extended_resource_name or "",
        found.metadata.resource_version,
    )


def _spec(spec: _Spec) -> ClaimSpec:
    devices = spec.devices
    return ClaimSpec(
        requests=tuple(map(_request, devices.requests or ())),
        constraints=tuple(map(_constraint, devices.constraints or ())),
    )


def _request(request: _Request) -> DeviceRequest:
    choices = [request.exactly] if request.exactly else request.first_available or []
    return DeviceRequest(request.name, tuple(map(_choice, choices)))


def _choice(exact: _Exact) -> DeviceChoice:
    wanted = (exact.capacity.requests if exact.capacity else None) or {}
    memory, core = (_wanted(wanted, name) for name in (MEMORY, COMPUTE))
    count = ALL if exact.allocation_mode == "All" else max(exact.count or 1, 1)
    return DeviceChoice(
        device_class=exact.device_class_name,
        count=min(count, _MAX_COUNT),
        memory_mib=None if memory is None else -(-memory // MIB_BYTES),
        core=core or 0,
        others=tuple(sorted(wanted.keys() - {MEMORY, COMPUTE})),
        selectors=_expressions(exact.selectors),
        tolerations=tuple(map(toleration_of, exact.tolerations or ())),
        admin=bool(exact.admin_access),
        name=exact.name,
    )


def _wanted(requests: dict[str, Any], name: str) -> int | None:
    """An amount; kube-scheduler compares the name as it is published, without a domain.

    The API server stores negative amounts. One counts as 0, because kube-scheduler raises it to the
    smallest share of the device; text that is no quantity counts as more than any device has.
    """
    if name not in requests:
        return None
    text = str(requests[name])
    try:
        return amount(text)
    except WireError:
        return 0 if text.startswith("-") else MOST


def _expressions(selectors: list[_Selector] | None) -> tuple[str, ...]:
    return tuple(each.cel.expression for each in selectors or () if each.cel)


def _constraint(found: _Constraint) -> DeviceConstraint:
    requests = tuple(found.requests or ())
    if found.match_attribute is None and found.distinct_attribute is not None:
        return DeviceConstraint(found.distinct_attribute, distinct=True, requests=requests)
    return DeviceConstraint(found.match_attribute or "", requests=requests)
