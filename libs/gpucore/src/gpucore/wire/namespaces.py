"""Namespaces, and the resources that their quotas and limits count."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gpucore.wire.errors import decoded
from gpucore.wire.objects import ObjectMetadata

NAMESPACES_PATH: Final = "/api/v1/namespaces"
QUOTAS_PATH: Final = "/api/v1/resourcequotas"
LIMITS_PATH: Final = "/api/v1/limitranges"
_REQUESTS: Final = "requests."


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """One namespace."""

    name: str
    annotations: Mapping[str, str]
    resource_version: str = ""


class CountedResources(msgspec.Struct, frozen=True, gc=False):
    """Names of the resources that a ResourceQuota or a LimitRange bounds."""

    namespace: str
    name: str
    resources: frozenset[str]
    resource_version: str = ""


class _Metadata(ObjectMetadata):
    annotations: dict[str, str] | None = None


class _Namespace(msgspec.Struct, gc=False):
    metadata: _Metadata


class _QuotaSpec(msgspec.Struct, gc=False):
    hard: dict[str, Any] | None = None


class _Quota(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _QuotaSpec | None = None


class _Limit(msgspec.Struct, gc=False):
    max: dict[str, Any] | None = None
    min: dict[str, Any] | None = None


class _LimitsSpec(msgspec.Struct, gc=False):
    limits: list[_Limit] | None = None


class _Limits(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _LimitsSpec | None = None


_NAMESPACE: Final = msgspec.json.Decoder(_Namespace)
_QUOTA: Final = msgspec.json.Decoder(_Quota)
_LIMITS: Final = msgspec.json.Decoder(_Limits)


def decode_namespace(raw: bytes | msgspec.Raw) -> Namespace:
    """Read one namespace.

    Raises:
        WireError: the bytes are no namespace.
    """
    meta = decoded(_NAMESPACE, raw, "no namespace").metadata
    return Namespace(meta.name, meta.annotations or {}, meta.resource_version)


def decode_quota(raw: bytes | msgspec.Raw) -> CountedResources:
    """Read one ResourceQuota; requests of a resource count as the resource.

    Raises:
        WireError: the bytes are no quota.
    """
    found = decoded(_QUOTA, raw, "no resource quota")
    hard = (found.spec and found.spec.hard) or {}
    return _counted(found.metadata, (name.removeprefix(_REQUESTS) for name in hard))


def decode_limit_range(raw: bytes | msgspec.Raw) -> CountedResources:
    """Read one LimitRange, narrowed to resources with a minimum or a maximum.

    Raises:
        WireError: the bytes are no limit range.
    """
    found = decoded(_LIMITS, raw, "no limit range")
    limits = (found.spec and found.spec.limits) or ()
    return _counted(found.metadata, (n for each in limits for n in _bounded(each)))


def _bounded(limit: _Limit) -> set[str]:
    return {*(limit.max or {}), *(limit.min or {})}


def _counted(meta: _Metadata, resources: Iterable[str]) -> CountedResources:
    return CountedResources(meta.namespace, meta.name, frozenset(resources), meta.resource_version)
