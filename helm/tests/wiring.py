"""What objects of the chart refer to: each other's labels and ports, and the programs' routes.

Routes are taken from the programs themselves: a probe cannot ask for what no program serves.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from charting import Object, Rendered, render

from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpudeviceplugin.web import Web
from gpuextender.http.app import probes_app
from gpuextender.http.routes import SchedulerRoutes
from gpuextender.webhook import AdmissionWebhook
from gpuinspect.web.app import make_app

EVERYTHING: Object = {
    "webhook": {"enabled": True},
    "dashboard": {"enabled": True},
    "monitoring": {"enabled": True},
    "mps": {"enabled": True},
}
PLAIN: Object = {
    "extender": {"tls": {"enabled": False}},
    "dashboard": {"enabled": True, "tls": {"enabled": False}},
    "monitoring": {"enabled": True, "tls": {"enabled": False}},
}
OTHER_PORTS: Object = {
    **EVERYTHING,
    "extender": {"port": 4001, "metricsPort": 4002},
    "devicePlugin": {"port": 4003},
    "webhook": {"port": 4004},
    "dashboard": {"enabled": True, "port": 4005},
}
VALUES = {"defaults": {}, "everything": EVERYTHING, "plain": PLAIN, "other-ports": OTHER_PORTS}
MODES = ("second", "extender")
VERSIONS = ("1.20.2", "1.34.0")
CASES = [(mode, name, version) for mode in MODES for name in VALUES for version in VERSIONS]

FLAGS: Mapping[str, Mapping[str, str]] = {
    "extender": {"http": "--port", "metrics": "--metrics-port"},
    "webhook": {"webhook": "--webhook-port", "metrics": "--metrics-port"},
    "device-plugin": {"metrics": "--listen-port"},
    "dashboard": {"https": "--port", "http": "--port"},
}
"""By container and name of a port: the flag that makes its program listen there."""
KUBE_SCHEDULER = {"https": 10259}
"""kube-scheduler listens there by default."""


def rendered(mode: str, name: str, version: str) -> Rendered:
    """The chart in one of the cases."""
    return render(version, {**VALUES[name], "scheduler": {"mode": mode}})


def workloads(found: Rendered) -> Iterator[tuple[str, Object, Object]]:
    """Name, labels and specification of the pods of everything that runs."""
    for item in found.objects:
        if item["kind"] in {"Deployment", "DaemonSet"}:
            template = item["spec"]["template"]
            yield item["metadata"]["name"], template["metadata"]["labels"], template["spec"]
    for item in found.of("Pod"):
        yield item["metadata"]["name"], item["metadata"]["labels"], item["spec"]
    for item in found.of("Job"):
        template = item["spec"]["template"]
        yield (
            item["metadata"]["name"].rsplit("-", 2)[0],  # the rest is a hash and the revision
            template["metadata"]["labels"],
            template["spec"],
        )


def selected(found: Rendered, labels: Mapping[str, str]) -> set[str]:
    """Names of the workloads whose pods have these labels."""
    assert labels, "an empty selector takes every pod"
    return {name for name, own, _ in workloads(found) if labels.items() <= own.items()}


def containers(found: Rendered) -> Iterator[tuple[Object, Object]]:
    """Every container that goes on running, with the specification of its pod."""
    for _, pod in found.pods():
        for container in pod["containers"]:
            yield pod, container


def listened(container: Object) -> dict[str, int]:
    """Ports by name that the container's program listens on, by its flags."""
    if container["name"] == "kube-scheduler":
        return KUBE_SCHEDULER
    flags = dict(flag.split("=", 1) for flag in container["args"] if "=" in flag)
    names = FLAGS[container["name"]]
    return {name: int(flags[flag]) for name, flag in names.items() if flag in flags}


def routes() -> dict[str, set[str]]:
    """What each container answers to a GET without a credential, from the programs' own tables."""
    nobody: Any = None
    probes = {route.path for route in probes_app(nobody, nobody).routes}
    return {
        "kube-scheduler": {"/healthz", "/metrics"},
        "extender": probes,
        "webhook": probes,
        "device-plugin": {
            resource.canonical for resource in Web(lambda: "")._runner.app.router.resources()
        },
        "dashboard": {getattr(route, "path", "") for route in make_app(nobody).routes},
    }


def admission_paths() -> set[str]:
    """Where the webhook's program answers reviews."""
    nobody: Any = None
    return {
        route.path
        for route in AdmissionWebhook(nobody, nobody, profiles=SchedulerProfiles()).app().routes
        if "POST" in getattr(route, "methods", ())
    }


def verb_paths() -> set[str]:
    """Where the extender answers a scheduler."""
    nobody: Any = None
    every = SchedulerRoutes(
        filter_=nobody, prioritize=nobody, bind=nobody, preempt=nobody, health=nobody
    )
    return set(every.handlers())
