"""ConfigMaps as the API server writes them, narrowed to labels and data."""

from typing import Final

import msgspec

from gpucore.wire.errors import WireError
from gpucore.wire.lists import Page, WatchEvent, WatchEventType


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    """One config map, by name within the followed namespace."""

    name: str
    labels: dict[str, str]
    data: dict[str, str]
    resource_version: str


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = ""
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _ConfigMap(msgspec.Struct, gc=False):
    metadata: _Metadata
    data: dict[str, str] | None = None


class _List(msgspec.Struct):
    metadata: _Metadata
    items: list[_ConfigMap] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata | None = None
    data: dict[str, str] | None = None
    code: int | None = None
    message: str | None = None


class _Line(msgspec.Struct):
    type: WatchEventType
    object: _Object


_LIST: Final = msgspec.json.Decoder(_List)
_LINE: Final = msgspec.json.Decoder(_Line)


def decode_config_maps(raw: bytes) -> Page[ConfigMap]:
    """Read a page of a list.

    Raises:
        WireError: the bytes are no list of config maps.
    """
    try:
        page = _LIST.decode(raw)
    except msgspec.MsgspecError as error:
        raise WireError(f"invalid list of config maps: {error}") from error
    items = tuple(_flat(item.metadata, item.data) for item in page.items or ())
    return Page(items, page.metadata.resource_version, page.metadata.continue_token or "")


def decode_config_map_event(raw: bytes) -> WatchEvent[ConfigMap]:
    """Read one line of a watch.

    Raises:
        WireError: the bytes are no event of a config map.
    """
    try:
        line = _LINE.decode(raw)
    except msgspec.MsgspecError as error:
        raise WireError(f"no event: {error}") from error
    metadata = line.object.metadata or _Metadata()
    if line.type is WatchEventType.ERROR:
        return WatchEvent(line.type, code=line.object.code or 0, message=line.object.message or "")
    if line.type is WatchEventType.BOOKMARK:
        return WatchEvent(line.type, resource_version=metadata.resource_version)
    return WatchEvent(line.type, _flat(metadata, line.object.data), metadata.resource_version)


def _flat(metadata: _Metadata, data: dict[str, str] | None) -> ConfigMap:
    return ConfigMap(metadata.name, metadata.labels or {}, data or {}, metadata.resource_version)
