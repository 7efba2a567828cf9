"""The configuration for a Prometheus without the operator, by the targets that it makes of pods."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from charting import CHART

EXAMPLE = CHART.parents[1] / "docs" / "examples" / "prometheus.yaml"
META = "__meta_kubernetes_"


def relabelled(job: Mapping[str, Any], found: Mapping[str, str]) -> dict[str, str]:
    """The labels of a target after Prometheus' relabelling; empty where it is dropped."""
    labels = {"job": job["job_name"], **found}
    for rule in job["relabel_configs"]:
        text = ";".join(labels.get(name, "") for name in rule["source_labels"])
        match = re.fullmatch(rule.get("regex", "(.*)"), text)
        action = rule.get("action", "replace")
        if (action == "keep" and not match) or (action == "drop" and match):
            return {}
        if action == "replace" and match:
            value = rule.get("replacement", "$1").replace("$1", match[1])
            labels[rule["target_label"]] = value
    return labels


def discovers(job: Mapping[str, Any], namespace: str) -> bool:
    """Whether a job looks for pods in a namespace; without names it looks in all."""
    names = [each.get("namespaces", {}).get("names") for each in job["kubernetes_sd_configs"]]
    return any(each is None or namespace in each for each in names)


def scraped(
    container: str, port: str, *, phase: str = "Running", namespace: str = "gpushare"
) -> set[tuple[str, str, str]]:
    """Job, pod and node of each target that the example makes of a port of a pod."""
    found = {
        f"{META}namespace": namespace,
        f"{META}pod_name": "pod-1",
        f"{META}pod_phase": phase,
        f"{META}pod_node_name": "gpu-1",
        f"{META}pod_label_app_kubernetes_io_name": "gpushare",
        f"{META}pod_container_name": container,
        f"{META}pod_container_port_name": port,
    }
    jobs = yaml.safe_load(EXAMPLE.read_text())["scrape_configs"]
    here = [job for job in jobs if discovers(job, namespace)]
    targets = [labels for job in here if (labels := relabelled(job, found))]
    return {(each["job"], each["pod"], each.get("node", "")) for each in targets}


@pytest.mark.parametrize(
    ("container", "port", "job", "node"),
    [
        ("extender", "metrics", "gpushare-extender", ""),
        ("webhook", "metrics", "gpushare-webhook", ""),
        ("device-plugin", "metrics", "gpushare-device-plugin", "gpu-1"),
        ("kube-scheduler", "https", "gpushare-scheduler", ""),
    ],
)
def test_pods_that_have_not_ended_are_scraped_under_the_jobs_of_the_rules(
    container: str, port: str, job: str, node: str
) -> None:
    """An ended pod never answers: GpushareExtenderNotReady would fire until it is deleted."""
    assert scraped(container, port) == {(job, "pod-1", node)}
    assert scraped(container, port, phase="Pending") == {(job, "pod-1", node)}
    assert scraped(container, port, phase="Failed") == set()
    assert scraped(container, port, phase="Succeeded") == set()


def test_no_other_port_is_scraped() -> None:
    """Such as that of the dashboard."""
    assert scraped("dashboard", "http") == set()


@pytest.mark.parametrize(
    ("container", "port"),
    [("extender", "metrics"), ("device-plugin", "metrics"), ("kube-scheduler", "https")],
)
def test_no_pod_of_a_tenant_is_a_target(container: str, port: str) -> None:
    """A pod with our labels that never answers would fire GpushareExtenderDown."""
    assert scraped(container, port, namespace="team-a") == set()
