"""The wire format of the stand-ins is that of Protocol Buffers."""

import pytest
from google.protobuf import descriptor_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from standins.wireformat import fields, message


@pytest.mark.slow
@given(st.lists(st.text(), max_size=4), st.text(max_size=300))
def test_messages_are_those_of_the_library(names: list[str], package: str) -> None:
    """Texts and messages of any length are read by the library, and written by it are read here."""
    raw = message((1, "a.proto"), (2, package), *((4, message((1, name))) for name in names))
    expected = pb.FileDescriptorProto(name="a.proto", package=package)
    for name in names:
        expected.message_type.add(name=name)
    assert pb.FileDescriptorProto.FromString(raw) == expected
    found = list(fields(expected.SerializeToString()))
    assert found == [
        (1, b"a.proto"),
        (2, package.encode()),
        *((4, message((1, name))) for name in names),
    ]


def test_numbers_between_texts_are_left_out() -> None:
    """A field of another kind does not shift those that follow; an unknown kind is an error."""
    field = pb.FieldDescriptorProto(name="n", number=300, type_name="t")
    assert list(fields(field.SerializeToString())) == [(1, b"n"), (6, b"t")]
    with pytest.raises(ValueError, match="wire type 5"):
        list(fields(b"\x0d\x00\x00\x00\x00"))
