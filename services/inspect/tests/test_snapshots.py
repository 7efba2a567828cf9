"""What is in a list of mixed kinds, however its objects are written down."""

import json

import pytest

from gpuinspect.snapshots import decode

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
