"""Every probe requests what its program serves, and every port is one that a program listens on."""

from urllib.parse import urlsplit

import pytest
import yaml
from charting import Object, Rendered
from wiring import (
    CASES,
    MODES,
    admission_paths,
    containers,
    listened,
    rendered,
    routes,
    selected,
    verb_paths,
    workloads,
)

pytestmark = pytest.mark.slow

PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
"""Alive is not ready: a probe of the wrong path would send calls to who cannot answer them yet."""
KUBE_SCHEDULER_READY = "/healthz"
"""It serves no /readyz before 1.26."""


def ports_of(container: Object) -> dict[str, int]:
    """Ports that a container declares, by name."""
    return {port["name"]: port["containerPort"] for port in container.get("ports", ())}


def pod_ports(found: Rendered, name: str) -> dict[str, int]:
    """Ports that the pods of a workload declare, by name."""
    pods = {workload: pod for workload, _, pod in workloads(found)}
    return {k: v for item in pods[name]["containers"] for k, v in ports_of(item).items()}


@pytest.mark.parametrize(("mode", "values", "version"), CASES)
def test_every_declared_port_is_listened_on(mode: str, values: str, version: str) -> None:
    """By the flag that makes the program listen there; two containers of a pod never share one."""
    found = rendered(mode, values, version)
    for pod, container in containers(found):
        listening = listened(container)
        for name, port in ports_of(container).items():
            assert listening.get(name) == port, f"{container['name']}: {name}"
        every = [port for item in pod["containers"] for port in set(listened(item).values())]
        assert len(every) == len(set(every))


@pytest.mark.parametrize(("mode", "values", "version"), CASES)
def test_every_probe_requests_what_its_program_serves(mode: str, values: str, version: str) -> None:
    """Path, port and scheme; readiness is requested of /readyz, which a program of ours has."""
    served = routes()
    for _, container in containers(rendered(mode, values, version)):
        name = container["name"]
        assert {"livenessProbe", "readinessProbe"} <= container.keys(), name
        for probe, path in PROBES.items():
            if probe not in container:
                continue
            call = container[probe]["httpGet"]
            wanted = KUBE_SCHEDULER_READY if name == "kube-scheduler" else path
            assert (call["path"], call["path"] in served[name]) == (wanted, True), (name, probe)
            assert call["port"] in ports_of(container), (name, probe)
            assert call["scheme"] == scheme(container), (name, probe)


def scheme(container: Object) -> str:
    """How the port of a container's probes is served, by its flags."""
    if container["name"] == "kube-scheduler":
        return "HTTPS"
    folder = (
        "--metrics-certificates=" if "extender" in container["image"] else "--tls-certificates="
    )
    return "HTTPS" if any(flag.startswith(folder) for flag in container["args"]) else "HTTP"


@pytest.mark.parametrize(("mode", "values", "version"), CASES)
def test_every_service_leads_to_a_declared_port(mode: str, values: str, version: str) -> None:
    """Of the pods that it selects, by name."""
    found = rendered(mode, values, version)
    services = found.of("Service")
    assert services
    for service in services:
        (name,) = selected(found, service["spec"]["selector"])
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in pod_ports(found, name), service["metadata"]["name"]


@pytest.mark.parametrize(("mode", "values", "version"), CASES)
def test_network_policies_open_the_declared_ports_and_no_others(
    mode: str, values: str, version: str
) -> None:
    """A port that is declared is there to be reached; one that is not is closed."""
    found = rendered(mode, values, version)
    covered = set()
    for policy in found.of("NetworkPolicy"):
        (name,) = selected(found, policy["spec"]["podSelector"]["matchLabels"])
        opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert opened == set(pod_ports(found, name).values()), name
        covered.add(name)
    assert covered == {name for name, _, _ in workloads(found) if "test" not in name}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("values", ["everything", "plain", "other-ports"])
def test_every_monitor_scrapes_a_path_that_is_served(mode: str, values: str) -> None:
    """The endpoint's port belongs to one container, whose program serves the path."""
    found, served = rendered(mode, values, "1.34.0"), routes()
    monitors = [*found.of("PodMonitor"), *found.of("ServiceMonitor")]
    assert monitors
    for monitor in monitors:
        (name,) = selected(found, monitor["spec"]["selector"]["matchLabels"])
        pods = {workload: pod for workload, _, pod in workloads(found)}
        for end in monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]:
            (container,) = [c for c in pods[name]["containers"] if end["port"] in ports_of(c)]
            assert end["path"] in served[container["name"]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("values", ["defaults", "other-ports"])
def test_the_api_server_calls_a_path_and_port_of_the_webhook(mode: str, values: str) -> None:
    """The Service has the port that is called, and the program answers at the path."""
    found = rendered(mode, values, "1.34.0")
    (hook,) = found.of("MutatingWebhookConfiguration")[0]["webhooks"]
    call = hook["clientConfig"]["service"]
    service = found.one("Service", call["name"])
    assert call["namespace"] == service["metadata"]["namespace"]
    assert call.get("port", 443) in {port["port"] for port in service["spec"]["ports"]}
    assert call["path"] in admission_paths()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("values", ["defaults", "plain", "other-ports"])
def test_kube_scheduler_calls_verbs_that_the_extender_serves(mode: str, values: str) -> None:
    """Prefix and verbs are routes, and the port is the extender's own or that of its Service."""
    found = rendered(mode, values, "1.34.0")
    (text,) = [
        item["data"]["config.yaml"]
        for item in found.of("ConfigMap")
        if "config.yaml" in item.get("data", {})
    ]
    (entry,) = yaml.safe_load(text)["extenders"]
    url = urlsplit(entry["urlPrefix"])
    for verb in ("filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb"):
        assert f"{url.path}/{entry[verb]}" in verb_paths()
    (extender,) = [item for _, item in containers(found) if item["name"] == "extender"]
    flags = dict(flag.split("=", 1) for flag in extender["args"] if "=" in flag)
    if mode == "second":
        assert (url.hostname, url.port) == (flags["--host"], int(flags["--port"]))
    else:
        (port,) = found.one("Service", "-extender")["spec"]["ports"]
        assert url.port == port["port"]
        assert ports_of(extender)[port["targetPort"]] == int(flags["--port"])
