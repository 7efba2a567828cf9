"""What is in a list of mixed kinds, however its objects are written down."""

import json
from pathlib import Path

import pytest

from gpuinspect.cluster.snapshots import decode, read
from gpuinspect.errors import SnapshotError

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
EVENT = {"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Pod", "name": "p"}}


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("apiVersion", "kind"), id="as kubectl writes"),
        pytest.param(("kind", "apiVersion"), id="kind first"),
        pytest.param(("metadata", "involvedObject", "apiVersion", "kind"), id="kind last"),
    ],
)
def test_the_kind_of_an_object_is_its_own(order: tuple[str, ...], indent: int | None) -> None:
    """Wherever it stands, and whatever kinds are named inside the object."""
    items = [{key: each[key] for key in (*order, *each) if key in each} for each in (NODE, EVENT)]
    text = json.dumps({"kind": "List", "items": items}, indent=indent)
    snapshot = decode(text.encode())
    assert [node.name for node in snapshot.nodes] == ["n"]
    assert snapshot.pods == ()
    assert len(snapshot.all("Event")) == 1


def test_a_kind_with_odd_letters_is_kept() -> None:
    """A name that is written with an escape is read like any other."""
    text = rb'{"items": [{"apiVersion": "v1", "kind": "Conf\u0069gMap", "metadata": {}}]}'
    assert len(decode(text).all("ConfigMap")) == 1


@pytest.mark.parametrize(
    "raw",
    [b"", b"[", b"[]", b"{}", b'{"kind": "Node"}', b'{"items": [3]}', b"\xff", b"[" * 100_000],
    ids=["empty", "cut off", "a list", "no items", "one object", "a number", "bytes", "deep"],
)
def test_what_is_no_snapshot_is_reported_with_its_path(tmp_path: Path, raw: bytes) -> None:
    """Whatever is in the file, the sentence states what should be."""
    path = tmp_path / "file.json"
    path.write_bytes(raw)
    with pytest.raises(SnapshotError) as caught:
        read(path)
    wanted = "what 'kubectl get nodes,pods -A -o json' prints"
    assert str(caught.value).startswith(f"{path} is not {wanted}: ")


def test_a_file_that_cannot_be_read_is_reported_with_its_path(tmp_path: Path) -> None:
    """And with the reason of the system."""
    with pytest.raises(SnapshotError) as caught:
        read(tmp_path / "none")
    assert (
        str(caught.value) == f"cannot read the snapshot {tmp_path}/none: No such file or directory"
    )


def test_a_list_of_one_kind_names_it_once() -> None:
    """Its items have no kind of their own."""
    found = decode(b'{"kind": "NodeList", "items": [{"metadata": {"name": "n"}}]}')
    assert [node.name for node in found.nodes] == ["n"]
    assert found.was_read("Node")
    assert not found.was_read("ConfigMap")


def test_a_single_object_is_named_in_the_error(tmp_path: Path) -> None:
    """A dump of one object lacks the list around it."""
    path = tmp_path / "file.json"
    path.write_text('{"kind": "Node"}')
    with pytest.raises(SnapshotError, match="it is a Node without items"):
        read(path)
