"""Every selector takes the pods that it means and no others, in every mode."""

from collections.abc import Iterator

import pytest
from charting import NAMESPACE, Object, Rendered, render
from wiring import CASES, EVERYTHING, MODES, rendered, selected, workloads

pytestmark = pytest.mark.slow

SELECTING = {
    "Service": ("selector",),
    "PodDisruptionBudget": ("selector", "matchLabels"),
    "NetworkPolicy": ("podSelector", "matchLabels"),
    "PodMonitor": ("selector", "matchLabels"),
    "Deployment": ("selector", "matchLabels"),
    "DaemonSet": ("selector", "matchLabels"),
}
"""Where objects of a kind write down which pods they are about."""


def selectors(found: Rendered) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Kind, name and labels of everything that selects pods."""
    for item in found.objects:
        if item["kind"] in SELECTING:
            labels = item["spec"]
            for key in SELECTING[item["kind"]]:
                labels = labels[key]
            yield item["kind"], item["metadata"]["name"], labels


def meant(kind: str, name: str, mode: str) -> str:
    """The workload that an object is about: the one of its name, with two exceptions."""
    if kind == "PodMonitor" and name == "gpushare-extender" and mode == "second":
        return "gpushare-scheduler"  # the extender is a sidecar of the scheduler there
    return name.removesuffix("-metrics") if kind == "Service" else name


@pytest.mark.parametrize(("mode", "values", "version"), CASES)
def test_every_selector_takes_the_pods_of_its_workload_alone(
    mode: str, values: str, version: str
) -> None:
    """Services, budgets, policies, monitors and workloads: none selects nothing or a neighbour."""
    found = rendered(mode, values, version)
    kinds = set()
    for kind, name, labels in selectors(found):
        kinds.add(kind)
        assert selected(found, labels) == {meant(kind, name, mode)}, f"{kind} {name}"
    assert {"PodDisruptionBudget", "NetworkPolicy", "Service", "DaemonSet"} <= kinds


@pytest.mark.parametrize("mode", MODES)
def test_no_selector_takes_a_pod_of_another_release(mode: str) -> None:
    """Two releases in one namespace do not meet."""
    values = {**EVERYTHING, "scheduler": {"mode": mode}}
    other = render(values=values, release="gpushare-other")
    for kind, name, labels in selectors(render(values=values)):
        assert selected(other, labels) == set(), f"{kind} {name}"


@pytest.mark.parametrize("mode", MODES)
def test_service_monitors_lead_to_a_service_and_its_pods(mode: str) -> None:
    """A ServiceMonitor selects one Service, which has the port that is scraped."""
    found = rendered(mode, "everything", "1.34.0")
    monitors = found.of("ServiceMonitor")
    assert len(monitors) == (mode == "second")
    for monitor in monitors:
        labels = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [
            item
            for item in found.of("Service")
            if labels.items() <= item["metadata"]["labels"].items()
        ]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {end["port"] for end in monitor["spec"]["endpoints"]} <= ports
        assert selected(found, service["spec"]["selector"]) == {monitor["metadata"]["name"]}


@pytest.mark.parametrize(("mode", "values", "version"), CASES)
def test_pods_are_spread_over_their_own_kind(mode: str, values: str, version: str) -> None:
    """A spread constraint counts the pods that it stands in, or it would spread nothing."""
    found = rendered(mode, values, version)
    for name, _, pod in workloads(found):
        for constraint in pod.get("topologySpreadConstraints", ()):
            assert selected(found, constraint["labelSelector"]["matchLabels"]) == {name}


@pytest.mark.parametrize(("version", "keys"), [("1.26.0", None), ("1.27.0", ["pod-template-hash"])])
def test_the_pods_of_an_upgrade_are_spread_among_themselves(
    version: str, keys: list[str] | None
) -> None:
    """Pods that they replace do not count: both new ones could be on one node otherwise."""
    for _, pod in render(version).pods():
        for constraint in pod.get("topologySpreadConstraints", ()):
            assert constraint.get("matchLabelKeys") == keys


@pytest.mark.parametrize(("mode", "values", "version"), CASES)
def test_every_account_and_volume_of_a_pod_is_there(mode: str, values: str, version: str) -> None:
    """Service accounts, secrets and ConfigMaps that pods name are made by the chart."""
    found = rendered(mode, values, version)
    made = {(item["kind"], item["metadata"]["name"]) for item in found.objects}
    for _, _, pod in workloads(found):
        if "serviceAccountName" in pod:
            assert ("ServiceAccount", pod["serviceAccountName"]) in made
        names = {volume["name"] for volume in pod.get("volumes", ())}
        for volume in pod.get("volumes", ()):
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in made
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in made
        mounts = [each for item in pod["containers"] for each in item.get("volumeMounts", ())]
        assert {mount["name"] for mount in mounts} == names


def taken(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector of NotIn expressions takes an object of these labels."""
    for expression in selector["matchExpressions"]:
        assert expression["operator"] == "NotIn"
        if labels.get(expression["key"]) in expression["values"]:
            return False
    return True


@pytest.mark.parametrize("mode", MODES)
def test_the_webhook_sees_namespaces_of_users_alone(mode: str) -> None:
    """Not kube-system, not the release's own, and none that is labelled to be left alone."""
    (hook,) = rendered(mode, "defaults", "1.34.0").of("MutatingWebhookConfiguration")[0]["webhooks"]
    key = "kubernetes.io/metadata.name"
    seen = [{key: "default"}, {key: "team", "gpushare/webhook": "enabled"}, {}]
    unseen = [{key: "kube-system"}, {key: NAMESPACE}, {key: "team", "gpushare/webhook": "disabled"}]
    assert [taken(hook["namespaceSelector"], labels) for labels in seen] == [True] * len(seen)
    assert [taken(hook["namespaceSelector"], labels) for labels in unseen] == [False] * len(unseen)
