"""Clusters that keep scheduler files of the original stack: its node ports, its policy format."""

import json

import helm_python as helm
import pytest
from charting import NAMESPACE, Object, render

PLAIN: Object = {"scheduler": {"mode": "extender"}, "extender": {"tls": {"enabled": False}}}


def with_node_ports(**ports: object) -> Object:
    """Values with the original's node ports."""
    service = {"originalNodePorts": {"enabled": True, **ports}}
    return {**PLAIN, "extender": {**PLAIN["extender"], "service": service}}


def test_the_originals_files_find_the_extender_at_their_ports() -> None:
    """They call 127.0.0.1:32766 and :32743, and both lead to the extender's own port."""
    (service,) = [
        item
        for item in render(values=with_node_ports()).of("Service")
        if item["metadata"]["name"].endswith("-extender")
    ]
    assert service["spec"]["type"] == "NodePort"
    assert {port["nodePort"] for port in service["spec"]["ports"]} == {32766, 32743}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == {"http"}
    assert 39999 in {port["port"] for port in service["spec"]["ports"]}


def test_no_node_port_is_open_unless_requested() -> None:
    """Who reaches such a port can bind pods."""
    for service in render(values={"scheduler": {"mode": "extender"}}).of("Service"):
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"
        assert not any("nodePort" in port for port in service["spec"]["ports"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"extender": with_node_ports()["extender"]}, "scheduler.mode=second has no Service"),
        (
            {
                "scheduler": {"mode": "extender"},
                "extender": {"service": {"originalNodePorts": {"enabled": True}}},
            },
            "call plain HTTP: set extender.tls.enabled=false",
        ),
        (with_node_ports(topology=32766), "are the same"),
        (with_node_ports(topology=39999), "topology and extender.port are the same"),
    ],
)
def test_what_the_originals_files_could_not_use_is_refused(values: Object, sentence: str) -> None:
    """The message names the way out."""
    with pytest.raises(helm.HelmError, match=sentence):
        render(values=values)


@pytest.mark.slow
def test_node_ports_are_warned_of() -> None:
    """After the install the notes say who can bind pods then."""
    assert "32766" in render(values=with_node_ports()).notes
    assert "32766" not in render(values=PLAIN).notes


@pytest.mark.slow
@pytest.mark.parametrize(("version", "expected"), [("1.22.17", True), ("1.23.0", False)])
def test_a_policy_is_offered_to_schedulers_that_read_one(version: str, expected: bool) -> None:
    """--policy-config-file went with 1.23."""
    config = render(version, {"scheduler": {"mode": "extender"}}).one("ConfigMap", "-config")
    assert ("policy.json" in config["data"]) is expected
    own = render(version).one("ConfigMap", "-scheduler")
    assert "policy.json" not in own["data"]


def test_the_policy_agrees_with_the_configuration() -> None:
    """In the spelling of the policy: enableHttps, and the time-out in nanoseconds."""
    config = render("1.22.17", {"scheduler": {"mode": "extender"}}).one("ConfigMap", "-config")
    policy = json.loads(config["data"]["policy.json"])
    assert (policy["kind"], policy["apiVersion"]) == ("Policy", "v1")
    (extender,) = policy["extenders"]
    host = f"gpushare-extender.{NAMESPACE}.svc"
    assert extender["urlPrefix"] == f"https://{host}:39999/gpushare-scheduler"
    assert (extender["enableHttps"], extender["httpTimeout"]) == (True, 5_000_000_000)
    assert extender["tlsConfig"]["serverName"] == host
    assert (extender["nodeCacheCapable"], extender["ignorable"]) == (True, False)
    verbs = {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "bind", "preempt")}
    assert verbs == {"filter", "prioritize", "bind", "preempt"}
    resources = {each["name"] for each in extender["managedResources"]}
    assert resources == {"aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun.com/gpu"}
