"""One round over the device plugins has bounds of time and number, and ends at a refusal."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpucore.wire.documents import PluginDocument
from gpukube import plugins
from gpukube.errors import ForbiddenError, UnreachableError
from gpukube.plugin_pods import PluginAddress
from gpukube.plugins import NOT_IN_TIME, PluginReplies, read_plugins

SECONDS = 5.0
NO_RIGHT = "the right to get pods/proxy in namespace gpushare is missing"


class Document(msgspec.Struct, frozen=True):
    """What each plugin of these tests replies: the name of its node."""

    node: str


class FakeClient:
    """Keeps the requests, and replies with what a test wants."""

    def __init__(self, reply: Callable[[str], bytes]) -> None:
        self._reply = reply
        self.paths: list[str] = []
        self.seconds: list[float] = []

    def get_small(self, path: str, *, most_bytes: int, seconds: float) -> bytes:
        assert most_bytes == 10
        self.paths.append(path)
        self.seconds.append(seconds)
        return self._reply(path)


def node_of(path: str) -> bytes:
    """The node of a plugin that ``address`` made."""
    return path.split("/pods/")[1].split("-", maxsplit=1)[0].encode()


def address(node: str, number: int = 0) -> PluginAddress:
    """The plugin of a node; each has another number where there are several."""
    return PluginAddress(node, "gpushare", f"{node}-{number}", 9395)


def read(kube: FakeClient, *found: PluginAddress) -> PluginReplies[Document]:
    """One round."""
    document = PluginDocument("x", lambda text: Document(text.decode()), 10, SECONDS)
    client: Any = kube
    return read_plugins(client, found, document)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugins are read in the order of their nodes."""
    monkeypatch.setattr(plugins, "AT_ONCE", 1)


@pytest.mark.usefixtures("one_at_a_time")
def test_after_a_refusal_no_other_plugin_is_read() -> None:
    """The right holds for the whole namespace, and it is what each node lacks."""

    def refuse(_: str) -> bytes:
        raise ForbiddenError("GET x", status=403, message="no")

    kube = FakeClient(refuse)
    found = read(kube, address("a"), address("b"), address("c"))
    assert (len(kube.paths), found.forbidden, found.nodes) == (1, "gpushare", {})
    assert found.failures == {"a": "GET x: 403 no", "b": NO_RIGHT, "c": NO_RIGHT}


@pytest.mark.usefixtures("one_at_a_time")
def test_all_plugins_share_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has what the others left of it, and those for which nothing is left are not read."""
    now = 100.0
    monkeypatch.setattr(plugins, "time", SimpleNamespace(monotonic=lambda: now))

    def slow(path: str) -> bytes:
        nonlocal now
        now += 2.5
        return node_of(path)

    kube = FakeClient(slow)
    found = read(kube, *map(address, "abcd"))
    assert kube.seconds == [5.0, 2.5]
    assert sorted(found.nodes) == ["a", "b"]
    assert found.failures == {"c": NOT_IN_TIME, "d": NOT_IN_TIME}


def test_a_plugin_that_fails_does_not_end_the_round() -> None:
    """Its node has the reason."""

    def reply(path: str) -> bytes:
        if node_of(path) == b"a":
            raise UnreachableError("no reply")
        return node_of(path)

    found = read(FakeClient(reply), address("a"), address("b"))
    assert (found.nodes, found.failures) == ({"b": Document("b")}, {"a": "no reply"})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_several_plugins_of_a_node_the_first_by_name_is_read(order: tuple[int, int]) -> None:
    """Whatever the order of the list is."""
    kube = FakeClient(node_of)
    read(kube, *(address("a", number) for number in order))
    assert kube.paths == ["/api/v1/namespaces/gpushare/pods/a-0:9395/proxy/x"]


def test_more_nodes_than_the_maximum_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them, in the order of their names."""
    monkeypatch.setattr(plugins, "MOST_PLUGINS", 2)
    kube = FakeClient(node_of)
    found = read(kube, *map(address, "dcba"))
    assert sorted(kube.paths) == [address(node).path("x") for node in "ab"]
    assert found.failures == dict.fromkeys("cd", "only 2 nodes are read")
