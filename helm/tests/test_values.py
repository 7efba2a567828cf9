"""What values do, and which are refused before anything reaches a cluster."""

import json
import re
from collections.abc import Iterator

import helm_python as helm
import pytest
import yaml
from charting import CHART, NAMESPACE, Object, render

from gpudeviceplugin.cluster.informers import POD_PAGE


@pytest.mark.slow
def test_lint_is_clean() -> None:
    """The linter of Helm reports nothing, in its strict form."""
    report = helm.lint(CHART, strict=True, kube_version="v1.20.2")
    assert report["errors"] == []
    assert [item["error"] for item in report["messages"]] == []


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"schedular": {}}, "'schedular' not allowed"),
        ({"scheduler": {"replcas": 1}}, "'replcas' not allowed"),
        ({"scheduler": {"replicas": "2"}}, "got string, want integer"),
        ({"scheduler": {"tolerations": [{"efect": "NoSchedule"}]}}, "'efect' not allowed"),
        ({"extender": {"policy": "binpak"}}, "value must be one of"),
        ({"extender": {"topologyPolicy": "best"}}, "value must be one of"),
        ({"extender": {"port": 70000}}, "maximum"),
        ({"devicePlugin": {"memoryUnit": "GB"}}, "memoryUnit"),
        ({"devicePlugin": {"nvml": {"hostPath": "relative"}}}, "hostPath"),
        ({"resourceDomain": "Aliyun.com"}, "resourceDomain"),
        ({"devicePlugin": {"memoryUnit": "0GiB"}}, "memoryUnit"),
        ({"devicePlugin": {"memoryUnit": "00MiB"}}, "memoryUnit"),
        ({"devicePlugin": {"kubeletRoot": "/var/../etc"}}, "kubeletRoot"),
        ({"devicePlugin": {"kubeletRoot": "/var/./lib"}}, "kubeletRoot"),
        ({"devicePlugin": {"kubeletRoot": "/"}}, "kubeletRoot"),
        ({"devicePlugin": {"kubeletRoot": "/var/lib/kubelet,type: File}"}}, "kubeletRoot"),
        ({"devicePlugin": {"nvml": {"hostPath": "/opt/../etc"}}}, "hostPath"),
        ({"devicePlugin": {"cdi": {"directory": "/var/run/../../etc"}}}, "directory"),
        ({"devicePlugin": {"cdi": {"enabled": "yes"}}}, "value must be one of"),
        ({"devicePlugin": {"extraArgs": ["--listen-host=0.0.0.0"]}}, "extraArgs"),
        ({"devicePlugin": {"extraArgs": ["--cdi=off"]}}, "extraArgs"),
        ({"extender": {"extraArgs": ["--host=0.0.0.0"]}}, "extraArgs"),
        ({"extender": {"extraArgs": ["--host"]}}, "extraArgs"),
        ({"extender": {"extraArgs": ["--tls-client-ca=/x"]}}, "extraArgs"),
        ({"mps": {"root": "/etc"}}, "root"),
        ({"mps": {"root": "/run"}}, "root"),
        ({"mps": {"root": "/etc/mps"}}, "root"),
        ({"mps": {"root": "/run/../etc"}}, "root"),
        ({"mps": {"shmSize": "0"}}, "shmSize"),
        ({"admissionPolicy": {"exemptUsers": ["a', 'b"]}}, "exemptUsers"),
        ({"certificates": {"validDays": 44}}, "minimum"),
        ({"nameOverride": "a" * 64}, "maxLength"),
    ],
)
def test_schema_refuses(values: Object, complaint: str) -> None:
    """A typo or an impossible value is refused with its place."""
    with pytest.raises(helm.HelmValuesError, match=complaint):
        render(values=values)


@pytest.mark.parametrize(
    "values",
    [
        {"extender": {"metricsPort": 39999}},
        {"extender": {"metricsPort": 10259}},
        {"extender": {"port": 10259}},
        {"webhook": {"enabled": True, "port": 9396}},
        {"webhook": {"enabled": True, "port": 39999}},
    ],
)
def test_ports_of_one_pod_differ(values: Object) -> None:
    """Two listeners on one port would leave one of them silent."""
    with pytest.raises(helm.HelmError, match="choose another port"):
        render(values=values)


def at(path: str, value: object) -> Object:
    """Values with one key, whose parts have dots between them."""
    found: Object = {}
    inner = found
    *parts, key = path.split(".")
    for part in parts:
        inner = inner.setdefault(part, {})
    inner[key] = value
    return found


@pytest.mark.parametrize(
    "path",
    [
        "dashboard.requireToken",
        "dashboard.tls.enabled",
        "monitoring.tls.enabled",
        "networkPolicy.enabled",
        "networkPolicy",
        "mps.readOnlyPipes",
        "webhook.enabled",
        "webhook.failurePolicy",
        "admissionPolicy.action",
        "devicePlugin.ignoredXids",
        "extender.port",
    ],
)
def test_null_is_refused_where_a_protection_or_a_program_needs_the_value(path: str) -> None:
    """Helm removes the default then: the protection would be off, or a flag or a port empty."""
    with pytest.raises(helm.HelmError, match=rf"{re.escape(path)}(\.\w+)? is null.*leave it out"):
        render(values=at(path, None))


def test_null_leaves_tls_of_the_extender_on() -> None:
    """Of the mode that calls over the network; anyone who reaches it could bind pods."""
    with pytest.raises(helm.HelmError, match=r"extender\.tls\.enabled is null"):
        render(values={"scheduler": {"mode": "extender"}} | at("extender.tls.enabled", None))


USERS_KEYS = {"resources", "scoreWeights"}
"""Maps whose keys are the user's, who removes one of the chart's by null."""
EMPTY: dict[type, object] = {str: "", bool: False, int: 0, list: [], dict: {}}


def keys(values: Object, above: str = "") -> Iterator[tuple[str, object]]:
    """Every key of the chart with an empty value of its kind, and every part."""
    for key in values.keys() - USERS_KEYS:
        yield above + key, EMPTY[type(values[key])]
        if isinstance(values[key], dict):
            yield from keys(values[key], f"{above}{key}.")


@pytest.mark.slow
def test_null_is_refused_wherever_it_is_not_the_empty_value() -> None:
    """For a key that is not refused, null renders what the default or its empty value does."""
    unlike, default = [], render().objects
    for path, empty in keys(yaml.safe_load((CHART / "values.yaml").read_text())):
        try:
            found = render(values=at(path, None))
        except helm.HelmError as refusal:
            if " is null" not in str(refusal):
                unlike.append(path)
            continue
        if found.objects != default and found.objects != render(values=at(path, empty)).objects:
            unlike.append(path)
    assert unlike == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"devicePlugin": {"kubeletRoot": "/var/snap/microk8s/common/var/lib/kubelet"}},
        {"devicePlugin": {"nvml": {"hostPath": "/opt/.nvml"}}},
        {"devicePlugin": {"memoryUnit": "256MiB"}},
        {"devicePlugin": {"extraArgs": ["--probe-seconds=9", "--mps-pipe=/tmp/nvidia-mps"]}},
        {"extender": {"extraArgs": ["--stale-after=60"]}},
        {"mps": {"enabled": True, "root": "/var/lib/gpushare/mps"}},
    ],
)
def test_schema_accepts(values: Object) -> None:
    """Unusual places and flags of the operator's own stay possible."""
    assert render(values=values).objects


def test_resource_domain_reaches_every_part() -> None:
    """Another domain is passed to scheduler, extender and plugin alike."""
    rendered = render(values={"resourceDomain": "example.com"})
    pods = dict(rendered.pods())
    (called,) = rendered.scheduler_config()["extenders"]
    assert called["managedResources"][0]["name"] == "example.com/gpu-mem"
    assert "--domain=example.com" in pods["scheduler"]["containers"][1]["args"]
    assert "--resource-domain=example.com" in pods["device-plugin"]["containers"][0]["args"]


BIG = 1_000_000
"""Helm reads numbers of a values file as floats, and writes floats from here on as 1e+06."""
LEADER = {"retrySeconds": BIG, "renewSeconds": 2 * BIG, "leaseSeconds": 3 * BIG}


def unbounded(schema: Object) -> Object:
    """Values with a big number wherever the schema permits one."""
    found: Object = {}
    for name, each in schema.get("properties", {}).items():
        kinds = each.get("oneOf", [each, each.get("items", {})])
        if any(kind.get("type") == "integer" and "maximum" not in kind for kind in kinds):
            found[name] = [BIG] if each.get("type") == "array" else BIG
        elif inner := unbounded(each):
            found[name] = inner
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_a_big_number_reaches_programs_as_an_integer(mode: str) -> None:
    """No program and no field of Kubernetes reads 1e+06 as a number of pods or seconds."""
    values = unbounded(json.loads((CHART / "values.schema.json").read_text()))
    assert {"burstPods", "replicas"} <= set(values["scheduler"])
    values["scheduler"] |= {"mode": mode, "leaderElection": LEADER}
    values["defragmentation"] |= {"enabled": True}
    values["idle"] |= {"schedule": "30 * * * *", "evict": True}
    text = json.dumps(render("1.37.0", values).objects)
    assert str(BIG) in text
    assert re.findall(r"[^ ]*[0-9]e\+[0-9]+", text) == []


NUMBER = "2026"
"""A name of Kubernetes, which YAML reads as a number."""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "api"), [("second", "devices"), ("extender", "claims")])
def test_a_name_of_digits_stays_a_name(mode: str, api: str) -> None:
    """The API server refuses a number in its place."""
    secret = {"secretName": NUMBER}
    values = {
        "scheduler": {"mode": mode, "name": NUMBER},
        "extender": {"tls": secret | {"clientSecretName": NUMBER, "clientNames": [NUMBER]}},
        "webhook": {"certificate": secret | {"caBundle": "YQ=="}},
        "dashboard": {"enabled": True, "tls": secret},
        "monitoring": {"enabled": True, "tls": secret},
        "devicePlugin": {"runtimeClassName": NUMBER},
        "claims": {"enabled": True, "deviceClass": NUMBER, "exclusiveDeviceClass": NUMBER + "0"},
        "api": api,
        "imagePullSecrets": [{"name": NUMBER}],
        "networkPolicy": {"monitoringNamespace": NUMBER},
    }
    text = json.dumps(render("1.37.0", values).objects)
    assert text.count(f'"{NUMBER}"') > 10
    assert re.findall(rf"\W+\w+\W+: {NUMBER}", text) == []


@pytest.mark.slow
def test_bind_ends_before_the_scheduler_stops_waiting() -> None:
    """The extender gives a bind up earlier than kube-scheduler gives up the extender."""
    rendered = render(values={"extender": {"httpTimeoutSeconds": 10}})
    assert rendered.scheduler_config()["extenders"][0]["httpTimeout"] == "10s"
    args = dict(rendered.pods())["scheduler"]["containers"][1]["args"]
    assert "--bind-deadline=8" in args


def test_mock_library_is_mounted_and_found() -> None:
    """A folder with an NVML library replaces what the container runtime would bring."""
    values = {"devicePlugin": {"nvml": {"hostPath": "/opt/nvml"}}}
    pod = dict(render(values=values).pods())["device-plugin"]
    (container,) = pod["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    mounts = {item["name"]: item["mountPath"] for item in container["volumeMounts"]}
    assert env["LD_LIBRARY_PATH"] == mounts["nvml"]
    assert "NVIDIA_VISIBLE_DEVICES" not in env


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "container"),
    [("scheduler", "kube-scheduler"), ("extender", "extender"), ("devicePlugin", "device-plugin")],
)
def test_amounts_are_texts(part: str, container: str) -> None:
    """A number, which people write and 1.20 refuses, reaches the cluster as text."""
    resources = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": 2.5}}
    pods = dict(render(values={part: {"resources": resources}}).pods())
    (found,) = [
        item["resources"]
        for pod in pods.values()
        for item in pod["containers"]
        if item["name"] == container
    ]
    assert found == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2.5"}}


@pytest.mark.slow
def test_one_replica_has_no_disruption_budget() -> None:
    """A budget of one of one would block every drain."""
    one = {"scheduler": {"replicas": 1}, "webhook": {"replicas": 1}}
    assert render(values=one).of("PodDisruptionBudget") == []


@pytest.mark.slow
def test_changed_configuration_restarts_the_scheduler() -> None:
    """kube-scheduler reads its configuration once, so its pods carry its digest."""

    def digest(values: Object) -> str:
        found = render(values=values, anew=True)
        template = found.one("Deployment", "-scheduler")["spec"]["template"]
        return str(template["metadata"]["annotations"]["gpushare/config-digest"])

    assert digest({}) == digest({})
    assert digest({}) != digest({"extender": {"weight": 3}})


@pytest.mark.slow
def test_notes_say_what_to_do_next() -> None:
    """After an install the notes name the label, the resource and the scheduler in force."""
    values = {"resourceDomain": "example.com", "scheduler": {"name": "shares"}}
    notes = render(values=values).notes
    assert "kubectl label node <gpu-node> gpushare=true" in notes
    assert "example.com/gpu-mem: 2" in notes
    assert "schedulerName: shares" in notes
    assert "webhook.enabled=false turns the webhook off" in notes
    assert f"kube-system, {NAMESPACE}, gpu-operator," in notes
    off = render(values={**values, "webhook": {"enabled": False}}).notes
    assert "schedulerName: shares" in off
    assert "The webhook is off" in off


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ({}, ""),
        (
            {"resourceDomain": "a.example.com", "annotationPrefix": "MINE"},
            " --resource-domain a.example.com --annotation-prefix MINE",
        ),
    ],
)
def test_notes_lead_to_commands_that_read_these_names(values: Object, flags: str) -> None:
    """Without the flags of other names the command finds no share; `inspect` explains no pod."""
    notes = render(values=values).notes
    for command in ("gpushare inspect -d", "gpushare explain pod NAME", "gpushare doctor"):
        assert f"     {command}{flags}\n" in f"{notes}\n"


def test_notes_of_extender_mode_lead_to_the_configuration() -> None:
    """The notes for the cluster's own scheduler name the object that holds its configuration."""
    rendered = render(values={"scheduler": {"mode": "extender"}})
    config = rendered.one("ConfigMap", "-config")
    assert config["metadata"]["name"] in rendered.notes
    assert "schedulerName" not in rendered.notes
    assert "gpushare install-scheduler" in rendered.notes
    assert "not encrypted" not in rendered.notes
    plain = {"scheduler": {"mode": "extender"}, "extender": {"tls": {"enabled": False}}}
    assert "not encrypted" in render(values=plain).notes


def test_two_pages_of_the_largest_pods_fit_the_memory_of_the_plugin() -> None:
    """A pod has at most 1.5 MiB in etcd, and six times as much as JSON where its author wants it.

    A plugin without such pods takes about 62 MiB.
    """
    (container,) = dict(render().pods())["device-plugin"]["containers"]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert limit > 62 + 2 * POD_PAGE * 9
