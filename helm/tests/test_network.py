"""Which ports are open, and who watches them."""

import pytest
from charting import Object, Rendered, render

pytestmark = pytest.mark.slow

EVERYTHING: Object = {"webhook": {"enabled": True}, "monitoring": {"enabled": True}}


OTHERS = {"device-plugin": {9395}, "webhook": {9443, 9396}, "certificates": set()}


def open_ports(rendered: Rendered) -> dict[str, set[int]]:
    """Ports that network policies leave open, by component."""
    return {
        item["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: {
            port["port"] for rule in item["spec"]["ingress"] for port in rule["ports"]
        }
        for item in rendered.of("NetworkPolicy")
    }


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("second", {"scheduler": {10259, 9396}, **OTHERS}),
        ("extender", {"extender": {39999, 9396}, **OTHERS}),
    ],
)
def test_only_needed_ports_are_open(mode: str, expected: dict[str, set[int]]) -> None:
    """Every component has a policy, and the webhook's pods do not offer the extender's port."""
    assert open_ports(render(values={**EVERYTHING, "scheduler": {"mode": mode}})) == expected


def test_policies_can_name_who_may_come() -> None:
    """Peers from the values are the only ones let in."""
    peer = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    rendered = render(values={"networkPolicy": {"metricsFrom": [peer]}})
    for item in rendered.of("NetworkPolicy"):
        if not item["spec"]["ingress"]:
            continue  # nobody calls the Job of the certificates
        webhook = item["metadata"]["name"].endswith(
            "-webhook"
        )  # the API server comes from anywhere
        assert item["spec"]["ingress"][1 if webhook else 0]["from"] == [peer]


def test_the_api_server_can_be_let_in_to_the_device_plugins_alone() -> None:
    """It comes from an address that is no pod's, beside those that scrape metrics."""
    peer = {"ipBlock": {"cidr": "10.0.0.5/32"}}
    for item in render(values={"networkPolicy": {"usageFrom": [peer]}}).of("NetworkPolicy"):
        peers = [each for rule in item["spec"]["ingress"] for each in rule.get("from", ())]
        assert (peer in peers) == item["metadata"]["name"].endswith("-device-plugin")
        assert peers != [peer]


def test_the_port_of_an_extender_is_open_to_the_peers_of_the_scheduler_alone() -> None:
    """Those that scrape metrics may not call bind."""
    scheduler, metrics = {"ipBlock": {"cidr": "10.0.0.5/32"}}, {"podSelector": {}}
    peers = {"schedulerFrom": [scheduler], "metricsFrom": [metrics]}
    rendered = render(values={"scheduler": {"mode": "extender"}, "networkPolicy": peers})
    rules = rendered.one("NetworkPolicy", "-extender")["spec"]["ingress"]
    allowed = {rule["ports"][0]["port"]: rule["from"] for rule in rules}
    assert allowed == {39999: [scheduler], 9396: [metrics]}


METRICS_PORTS = {9395, 9396, 10259}
OWN: Object = {"podSelector": {}}
MONITORING: Object = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
}


def metrics_peers(rendered: Rendered) -> list[list[Object] | None]:
    """Who may reach each port with metrics; None is everybody."""
    return [
        rule.get("from")
        for item in rendered.of("NetworkPolicy")
        for rule in item["spec"]["ingress"]
        if METRICS_PORTS & {port["port"] for port in rule["ports"]}
    ]


@pytest.mark.parametrize("mode", ["second", "extender"])
def test_metrics_are_closed_to_tenants_by_default(mode: str) -> None:
    """The release's own namespace and that of Prometheus reach metrics, and nobody else."""
    found = metrics_peers(render(values={**EVERYTHING, "scheduler": {"mode": mode}}))
    assert found == [[OWN, MONITORING]] * (4 if mode == "second" else 3)


def test_the_monitoring_namespace_can_be_another_or_none() -> None:
    """Its name is a value; without one the release's own namespace is left."""
    other = render(values={"networkPolicy": {"monitoringNamespace": "observability"}})
    names = {"kubernetes.io/metadata.name": "observability"}
    assert metrics_peers(other)[0] == [OWN, {"namespaceSelector": {"matchLabels": names}}]
    none = render(values={"networkPolicy": {"monitoringNamespace": ""}})
    assert metrics_peers(none)[0] == [OWN]


def test_policies_can_be_left_out() -> None:
    """A cluster with rules of its own gets none from the chart."""
    assert render(values={"networkPolicy": {"enabled": False}}).of("NetworkPolicy") == []


COMMON = {"gpushare-device-plugin", "gpushare-extender", "gpushare-webhook"}


@pytest.mark.parametrize(
    ("mode", "names"), [("second", COMMON | {"gpushare-scheduler"}), ("extender", COMMON)]
)
def test_monitors_point_at_ports_that_exist(mode: str, names: set[str]) -> None:
    """Each monitor selects running pods, or a Service, with the port that it names."""
    rendered = render(values={**EVERYTHING, "scheduler": {"mode": mode}})
    pods = dict(rendered.pods())
    found = [*rendered.of("PodMonitor"), *rendered.of("ServiceMonitor")]
    assert {item["metadata"]["name"] for item in found} == names
    for item in found:
        component = item["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        ports = {p["name"] for c in pods[component]["containers"] for p in c.get("ports", [])}
        ends = item["spec"].get("podMetricsEndpoints") or item["spec"]["endpoints"]
        assert {end["port"] for end in ends} <= ports


def test_monitors_are_not_made_by_default() -> None:
    """A cluster without the Prometheus operator does not know these kinds."""
    rendered = render()
    assert rendered.of("PodMonitor") == rendered.of("ServiceMonitor") == []


@pytest.mark.parametrize("mode", ["second", "extender"])
def test_every_port_names_its_protocol(mode: str) -> None:
    """Until 1.20 server-side apply refuses a Service's port without one, default or not."""
    rendered = render(values={**EVERYTHING, "scheduler": {"mode": mode}})
    ports = [port for service in rendered.of("Service") for port in service["spec"]["ports"]]
    for _, pod in rendered.pods():
        ports += [port for item in pod["containers"] for port in item.get("ports", ())]
    assert ports
    assert {port.get("protocol") for port in ports} == {"TCP"}
