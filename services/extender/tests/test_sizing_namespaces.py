"""What namespaces allow, event by event: nothing that is gone counts, nothing else is lost."""

from gpucore.wire.namespaces import CountedResources, Namespace
from gpuextender.sizing.namespaces import CountingNamespaces, NamespaceRules

MEM = "aliyun.com/gpu-mem"


def quota(name: str, *resources: str, namespace: str = "team") -> CountedResources:
    """A ResourceQuota that bounds these resources."""
    return CountedResources(namespace, name, frozenset(resources))


def test_a_namespace_counts_until_its_last_quota_goes() -> None:
    """Two quotas can bound the same resource; those of other namespaces are their own."""
    quotas = CountingNamespaces(MEM)
    quotas.on_replace([quota("a", MEM), quota("b", MEM, "pods"), quota("c", "pods", namespace="x")])
    quotas.on_delete(quota("a", MEM))
    assert ("team" in quotas, "x" in quotas) == (True, False)
    quotas.on_delete(quota("b", namespace="x"))
    assert "team" in quotas
    quotas.on_delete(quota("b"))
    assert "team" not in quotas


def test_a_list_replaces_all_quotas() -> None:
    """One that was deleted while the watch was interrupted does not count."""
    quotas = CountingNamespaces(MEM)
    quotas.on_replace([quota("a", MEM)])
    quotas.on_replace([quota("a", MEM, namespace="other")])
    assert ("team" in quotas, "other" in quotas) == (False, True)


def test_annotations_are_those_of_the_namespace_as_it_is() -> None:
    """An owner who withdraws, or a namespace that is created anew, has not opted in."""
    rules = NamespaceRules(MEM)
    (_, namespaces), _, _ = rules.followed()
    namespaces.on_replace([Namespace("team", {"a": "1"}), Namespace("gone", {"a": "1"})])
    assert rules.annotations("team") is None
    rules.known = lambda: True
    assert rules.annotations("team") == {"a": "1"}
    namespaces.on_update(Namespace("team", {}), b"")
    assert rules.annotations("team") == {}
    namespaces.on_delete(Namespace("team", {}))
    assert rules.annotations("team") is None
    namespaces.on_replace([Namespace("team", {"b": "2"})])
    assert (rules.annotations("team"), rules.annotations("gone")) == ({"b": "2"}, None)
