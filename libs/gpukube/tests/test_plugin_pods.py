"""Which pods are device plugins, and which of those that do not run are missing."""

import json

import msgspec

from gpukube.plugin_pods import PluginAddress, plugin_addresses
from gpukube.testing.plugin_pods import plugin_pod


def found(*pods: dict[str, object]) -> list[PluginAddress]:
    """The addresses of these pods."""
    return plugin_addresses(msgspec.Raw(json.dumps(pod).encode()) for pod in pods)


def test_a_plugin_that_does_not_run_is_missing_though_another_namespace_has_one_there() -> None:
    """Any tenant can give a pod the labels of a plugin; one of its own namespace replaces it."""
    waiting = plugin_pod("old", "n1", phase="Pending")
    theirs = plugin_pod("theirs", "n1", namespace="tenant")
    assert [(each.pod, each.running) for each in found(waiting, theirs)] == [
        ("old", False),
        ("theirs", True),
    ]
    new = plugin_pod("new", "n1")
    assert [each.pod for each in found(waiting, theirs, new)] == ["theirs", "new"]
