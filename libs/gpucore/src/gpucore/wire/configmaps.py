"""ConfigMaps as the API server writes them, narrowed to labels and data."""

from typing import Final

import msgspec

from gpucore.wire.errors import decoded
from gpucore.wire.objects import ObjectMetadata


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    """One config map."""

    name: str
    labels: dict[str, str]
    data: dict[str, str]
    resource_version: str = ""
    namespace: str = ""


class _Metadata(ObjectMetadata):
    labels: dict[str, str] | None = None


class _ConfigMap(msgspec.Struct, gc=False):
    metadata: _Metadata
    data: dict[str, str] | None = None


_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)


def decode_config_map(raw: bytes | msgspec.Raw) -> ConfigMap:
    """Read one config map.

    Raises:
        WireError: the bytes are no config map.
    """
    found = decoded(_CONFIG_MAP, raw, "an object is no ConfigMap")
    meta = found.metadata
    labels, data = meta.labels or {}, found.data or {}
    return ConfigMap(meta.name, labels, data, meta.resource_version, meta.namespace)
