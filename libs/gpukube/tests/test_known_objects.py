"""The objects of a collection by key, and what is called after each change."""

from collections.abc import Iterator
from typing import NamedTuple

from gpukube.watch.collection import KnownObjects


class Item(NamedTuple):
    """An object of a collection."""

    name: str
    size: int = 0


class Bench:
    """Known objects, and the calls after changes."""

    def __init__(self) -> None:
        self.calls: list[Item | None] = []
        self.known = KnownObjects[str, Item](lambda one: one.name, self.calls.append)

    def taken(self) -> Iterator[Item | None]:
        """The calls since the last look."""
        calls, self.calls[:] = list(self.calls), []
        return iter(calls)


def test_a_list_replaces_everything_and_reports_each_object() -> None:
    """Then once without one, because others may be gone."""
    bench = Bench()
    bench.known.on_replace([Item("a"), Item("b")])
    assert bench.known.items == {"a": Item("a"), "b": Item("b")}
    assert list(bench.taken()) == [Item("a"), Item("b"), None]
    bench.known.on_replace([Item("b", 2)])
    assert bench.known.items == {"b": Item("b", 2)}
    assert list(bench.taken()) == [Item("b", 2), None]


def test_an_empty_list_is_reported_too() -> None:
    """All objects are gone."""
    bench = Bench()
    bench.known.on_update(Item("a"), b"")
    bench.known.on_replace([])
    assert bench.known.items == {}
    assert list(bench.taken()) == [Item("a"), None]


def test_an_update_replaces_the_object_of_its_key_alone() -> None:
    """The call has the new object."""
    bench = Bench()
    bench.known.on_replace([Item("a"), Item("b")])
    list(bench.taken())
    bench.known.on_update(Item("a", 7), b"")
    assert bench.known.items == {"a": Item("a", 7), "b": Item("b")}
    assert list(bench.taken()) == [Item("a", 7)]


def test_a_deletion_removes_the_object_of_its_key_alone() -> None:
    """The call has no object; one that is not known is reported as well."""
    bench = Bench()
    bench.known.on_replace([Item("a"), Item("b")])
    list(bench.taken())
    bench.known.on_delete(Item("a", 9))
    assert bench.known.items == {"b": Item("b")}
    bench.known.on_delete(Item("z"))
    assert bench.known.items == {"b": Item("b")}
    assert list(bench.taken()) == [None, None]


def test_readers_of_the_mapping_see_every_change() -> None:
    """They keep the mapping itself, so that it is never replaced by another one."""
    bench = Bench()
    seen = bench.known.items
    bench.known.on_replace([Item("a")])
    bench.known.on_update(Item("b"), b"")
    assert seen == {"a": Item("a"), "b": Item("b")}
    bench.known.on_delete(Item("a"))
    assert seen is bench.known.items
    assert seen == {"b": Item("b")}
