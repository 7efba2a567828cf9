"""The wire format of Protocol Buffers, as far as the cases speak it to kubelet.

It runs in pods of the device plugin's image, alone or in front of another program. The cases know
kubelet's APIs by the field numbers that Kubernetes publishes, not by the stubs of the plugin that
they test. See https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator


def message(*fields: tuple[int, str | bytes]) -> bytes:
    """A message of texts and of messages, each with the number of its field."""
    return b"".join(_field(number, value) for number, value in fields)


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each text or message in a message; numbers are left out."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        if key & 7 == 0:
            _, at = _number(data, at)
            continue
        if key & 7 != 2:
            raise ValueError(f"field {key >> 3} has the wire type {key & 7}")
        size, at = _number(data, at)
        yield key >> 3, data[at : at + size]
        at += size


def _field(number: int, value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    return bytes([value & 127 | 128]) + _varint(value >> 7)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while data[at] & 128:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
