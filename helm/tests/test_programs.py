"""What each program of the chart is started with: flags, environment, mounts, and its node."""

from typing import Any

import pytest
import yaml
from charting import NAMESPACE, Object, Rendered, render

FLAGS = [
    "--port=39999",
    "--metrics-port=9396",
    "--metrics-certificates=/etc/gpushare-metrics",
    "--log-level=info",
    "--policy=binpack",
    "--topology-policy=best-effort",
    "--domain=aliyun.com",
    "--annotation-prefix=ALIYUN_COM",
]
"""Of every process of the extender's image."""
PROFILES = [
    "--webhook-scheduler=gpushare-scheduler",
    "--burst-scheduler=gpushare-scheduler-burst",
    "--burst-pods=32",
]
"""In mode second."""
STARTED = {
    ("second", "scheduler", "extender"): [
        "--host=127.0.0.1",
        "--bind-deadline=4",
        "--percentage-of-nodes=100",
        "--candidates=1",
        "--nominate=refused",
        f"--mix-history={NAMESPACE}/gpushare-extender-mix",
        f"--nominate-lease={NAMESPACE}/gpushare-scheduler",
        *PROFILES,
        *FLAGS,
    ],
    ("extender", "extender", "extender"): [
        "--drain-seconds=5",
        "--tls-certificates=/etc/gpushare/tls",
        "--tls-client-ca=/etc/gpushare/tls/ca.crt",
        "--tls-client-names=gpushare-extender-client",
        "--bind-deadline=4",
        "--candidates=1",
        "--nominate=refused",
        f"--mix-history={NAMESPACE}/gpushare-extender-mix",
        "--webhook-scheduler=",
        *FLAGS,
    ],
    ("second", "webhook", "webhook"): [
        "--webhook-port=9443",
        "--webhook-certificates=/etc/gpushare/webhook",
        *PROFILES,
        "--drain-seconds=5",
        "--nominate=off",
        "--pod-groups=false",
        *FLAGS,
    ],
    ("extender", "webhook", "webhook"): [
        "--webhook-port=9443",
        "--webhook-certificates=/etc/gpushare/webhook",
        "--webhook-scheduler=",
        "--drain-seconds=5",
        "--nominate=off",
        "--pod-groups=false",
        *FLAGS,
    ],
    ("second", "dashboard", "dashboard"): [
        "dashboard",
        "--host=",
        "--port=8080",
        "--interval=10",
        "--resource-domain=aliyun.com",
        "--annotation-prefix=ALIYUN_COM",
        f"--mix-history={NAMESPACE}/gpushare-extender-mix",
        "--require-token",
        "--tls-certificates=/etc/gpushare/dashboard",
    ],
    ("second", "device-plugin", "device-plugin"): [
        "--kubelet-dir=/var/lib/kubelet/device-plugins",
        "--pod-resources-socket=/var/lib/kubelet/pod-resources/kubelet.sock",
        "--resource-domain=aliyun.com",
        "--annotation-prefix=ALIYUN_COM",
        "--memory-unit=GiB",
        "--reserve-mib=0",
        "--visible-devices=uuid",
        "--listen-port=9395",
        "--tls-certificates=/etc/gpushare-metrics",
        "--log-level=info",
        "--ignored-xids=[13,31,43,45,68,109]",
        "--cdi=auto",
        "--cdi-dir=/var/run/cdi",
        "--record-seconds=15",
        "--record-dir=/var/lib/kubelet/plugins/gpushare-usage",
    ],
}
PAGE: Object = {"dashboard": {"enabled": True}}
MONITORED: Object = {"monitoring": {"tls": {"enabled": True}}}


def chart(mode: str = "second", **values: Any) -> Rendered:
    """The chart with its dashboard and with metrics over TLS."""
    return render(values={**PAGE, **MONITORED, "scheduler": {"mode": mode}, **values})


def container(rendered: Rendered, component: str, name: str) -> Object:
    """One container."""
    pod = dict(rendered.pods())[component]
    (found,) = (each for each in pod["containers"] if each["name"] == name)
    return dict(found)


def arguments(values: Object, component: str, name: str, mode: str = "second") -> list[str]:
    """Its flags."""
    return list(container(chart(mode, **values), component, name)["args"])


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "component", "name"), STARTED)
def test_programs_are_started_with_these_flags(mode: str, component: str, name: str) -> None:
    """No more and no less, in their order."""
    found = container(chart(mode), component, name)["args"]
    assert found == STARTED[mode, component, name]


OTHERS: Object = {
    "extender": {
        "policy": "spread",
        "topologyPolicy": "static",
        "logLevel": "debug",
        "port": 4001,
        "metricsPort": 4002,
    },
    "annotationPrefix": "EXAMPLE",
    "resourceDomain": "example.com",
    "unhealthyConfigMaps": True,
    "monitoring": {"tls": {"enabled": False}},
    "devicePlugin": {
        "memoryUnit": "256MiB",
        "reserveMiB": 300,
        "visibleDevices": "index",
        "port": 4003,
        "logLevel": "debug",
        "ignoredXids": [13],
        "cdi": {"enabled": True, "gpuKind": "nvidia.com/gpu", "directory": "/etc/cdi"},
        "numaHints": True,
        "startTurns": True,
        "unhealthyConfigMap": True,
        "record": {"seconds": 30},
        "extraArgs": ["--x=1"],
    },
}
"""Every value that becomes a flag, and is not the default."""


@pytest.mark.slow
def test_values_of_the_extender_reach_the_webhook_too() -> None:
    """Both are processes of one image, and must see the cluster in the same way."""
    for component, name in (("scheduler", "extender"), ("webhook", "webhook")):
        assert arguments(OTHERS, component, name)[-8:] == [
            "--port=4001",
            "--metrics-port=4002",
            "--log-level=debug",
            "--policy=spread",
            "--topology-policy=static",
            "--domain=example.com",
            "--annotation-prefix=EXAMPLE",
            "--unhealthy-configmaps=true",
        ]


@pytest.mark.slow
def test_the_spelling_of_2019_becomes_todays_topology_policy() -> None:
    """Values of the original topology extender can be kept."""
    kept = {"extender": {"topologyPolicy": "best_effort"}}
    assert "--topology-policy=best-effort" in arguments(kept, "scheduler", "extender")


def test_values_of_the_plugin_become_flags() -> None:
    """Each value its own; without TLS there is no flag of it."""
    assert arguments(OTHERS, "device-plugin", "device-plugin")[2:] == [
        "--resource-domain=example.com",
        "--annotation-prefix=EXAMPLE",
        "--memory-unit=256MiB",
        "--reserve-mib=300",
        "--visible-devices=index",
        "--listen-port=4003",
        "--log-level=debug",
        "--ignored-xids=[13]",
        "--cdi=on",
        "--cdi-dir=/etc/cdi",
        "--cdi-kind=nvidia.com/gpu",
        "--numa-hints",
        "--start-turns",
        "--unhealthy-configmap",
        "--record-seconds=30",
        "--record-dir=/var/lib/kubelet/plugins/gpushare-usage",
        "--x=1",
    ]


@pytest.mark.slow
def test_without_cdi_the_plugin_has_no_folder_of_it() -> None:
    """Neither a flag nor a mount."""
    rendered = chart(devicePlugin={"cdi": {"enabled": False}})
    found = container(rendered, "device-plugin", "device-plugin")
    assert "--cdi=off" in found["args"]
    assert not [flag for flag in found["args"] if flag.startswith(("--cdi-dir", "--cdi-kind"))]
    assert "cdi" not in {mount["name"] for mount in found["volumeMounts"]}


@pytest.mark.slow
def test_flags_name_files_that_are_mounted() -> None:
    """Every file or folder in a flag is in a volume of the container, or is the MPS program."""
    sets = {"topology": {"staticSets": {"t": {"2": [[0, 1]]}}}}
    plugin = {"mps": {"enabled": True}}
    for mode in ("second", "extender"):
        rendered = chart(mode, **sets, **plugin)
        for _, pod in rendered.pods():
            for each in pod["containers"]:
                mounts = [mount["mountPath"] for mount in each.get("volumeMounts", ())]
                words = [*each.get("args", ()), *each.get("command", ())]
                paths = [flag.partition("=")[2] for flag in words if "=/" in flag]
                for path in paths:
                    inside = any(path == at or path.startswith(f"{at}/") for at in mounts)
                    assert inside or "empty-dir" in path, (each["name"], path)


def test_the_plugin_knows_its_node() -> None:
    """Its name is that of the node, not of the pod; it sees the driver and every GPU."""
    found = container(chart(), "device-plugin", "device-plugin")["env"]
    assert found == [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]


@pytest.mark.slow
def test_the_plugin_mounts_kubelets_folders() -> None:
    """Their place on the node is a value; in the container they are where the flags say.

    kubelet has device plugins in one directory, whatever its root directory is. Histories have the
    same place in both: it is a flag.
    """
    values = {"devicePlugin": {"kubeletRoot": "/data/kubelet"}}
    rendered = chart(**values)
    pod = dict(rendered.pods())["device-plugin"]
    mounts = {
        mount["name"]: (mount["mountPath"], mount.get("readOnly", False))
        for mount in pod["containers"][0]["volumeMounts"]
    }
    assert mounts == {
        "metrics-certificate": ("/etc/gpushare-metrics", True),
        "device-plugins": ("/var/lib/kubelet/device-plugins", False),
        "pod-resources": ("/var/lib/kubelet/pod-resources", True),
        "cdi": ("/var/run/cdi", False),
        "usage-history": ("/data/kubelet/plugins/gpushare-usage", False),
    }
    folders = {item["name"]: item["hostPath"] for item in pod["volumes"] if "hostPath" in item}
    assert folders == {
        "device-plugins": {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"},
        "pod-resources": {"path": "/data/kubelet/pod-resources", "type": "Directory"},
        "cdi": {"path": "/var/run/cdi", "type": "DirectoryOrCreate"},
        "usage-history": {
            "path": "/data/kubelet/plugins/gpushare-usage",
            "type": "DirectoryOrCreate",
        },
    }
    mps = {"mps": {"enabled": True}}
    flags = arguments({**values, **mps}, "device-plugin", "device-plugin")
    (shm,) = (flag for flag in flags if flag.startswith("--mps-shm="))
    assert shm.startswith("--mps-shm=/data/kubelet/pods/")


@pytest.mark.slow
def test_the_plugin_runs_on_nodes_of_either_label() -> None:
    """Two terms are alternatives; both labels in one term would demand both."""
    pod = dict(chart().pods())["device-plugin"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": label, "operator": "In", "values": ["true"]}]}
        for label in ("gpushare", "gputopology")
    ]
    assert pod["tolerations"] == [{"operator": "Exists", "effect": "NoSchedule"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert "nodeSelector" not in pod
    chosen = chart(devicePlugin={"nodeSelector": {"pool": "gpu"}, "runtimeClassName": "nvidia"})
    pod = dict(chosen.pods())["device-plugin"]
    assert (pod["nodeSelector"], pod["runtimeClassName"]) == ({"pool": "gpu"}, "nvidia")


def test_an_upgrade_of_the_plugin_goes_on_by_parts() -> None:
    """A tenth of the nodes at a time."""
    spec = chart().one("DaemonSet", "-device-plugin")["spec"]
    assert spec["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "10%"},
    }


@pytest.mark.slow
def test_replicas_are_those_of_the_values() -> None:
    """The dashboard has one process: sessions are known to it alone."""
    values = {"webhook": {"replicas": 3}}
    rendered = render(values={**PAGE, **values, "scheduler": {"replicas": 4}})
    found = {item["metadata"]["name"]: item["spec"] for item in rendered.of("Deployment")}
    assert {name: spec["replicas"] for name, spec in found.items()} == {
        "gpushare-scheduler": 4,
        "gpushare-webhook": 3,
        "gpushare-dashboard": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_one_pod_of_each_stays_through_a_drain(mode: str) -> None:
    """A broken pod does not keep a node from being drained, where the cluster knows the field."""
    values = {"scheduler": {"mode": mode}}
    known = "AlwaysAllow"
    for version, policy in (("1.26.0", None), ("1.27.0", known), ("1.27.0-gke.1", known)):
        budgets = render(version, values).of("PodDisruptionBudget")
        names = {item["metadata"]["name"] for item in budgets}
        main = "gpushare-scheduler" if mode == "second" else "gpushare-extender"
        assert names == {main, "gpushare-webhook"}
        for each in budgets:
            assert each["spec"]["minAvailable"] == 1
            assert "maxUnavailable" not in each["spec"]
            assert each["spec"].get("unhealthyPodEvictionPolicy") == policy


PATIENT = {"periodSeconds": 20, "timeoutSeconds": 5, "failureThreshold": 3}
PROBES = {
    "extender": (
        {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 60},
        PATIENT,
        {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 10},
    ),
    "device-plugin": (
        {"periodSeconds": 2, "failureThreshold": 30},
        {"periodSeconds": 20, "timeoutSeconds": 5},
        {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 15},
    ),
}
PROBES["webhook"] = PROBES["dashboard"] = PROBES["extender"]


@pytest.mark.parametrize("name", PROBES)
def test_probes_leave_time_to_start_and_to_answer(name: str) -> None:
    """Readiness is looked at every two seconds; a process under load is not killed at once."""
    component = "scheduler" if name == "extender" else name
    found = container(chart(), component, name)
    times = [
        {key: value for key, value in found[probe].items() if key != "httpGet"}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    ]
    assert times == list(PROBES[name])


@pytest.mark.parametrize("mode", ["second", "extender"])
def test_kube_scheduler_depends_on_the_extender_for_our_resources(mode: str) -> None:
    """It calls every verb with names of nodes, and places no pod of ours without an answer."""
    rendered = chart(mode)
    text = "-scheduler" if mode == "second" else "-extender-config"
    config = rendered.one("ConfigMap", text)["data"]["config.yaml"]
    (extender,) = yaml.safe_load(config)["extenders"]
    verbs = ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb")
    assert [extender[verb] for verb in verbs] == ["filter", "prioritize", "preempt", "bind"]
    assert (extender["nodeCacheCapable"], extender["ignorable"]) == (True, False)
    assert (extender["weight"], extender["httpTimeout"]) == (1, "5s")
    assert extender["enableHTTPS"] is (mode == "extender")
    names = ("gpu-mem", "gpu-core.percentage", "gpu")
    assert extender["managedResources"] == [
        {"name": f"aliyun.com/{name}", "ignoredByScheduler": False} for name in names
    ]


def test_the_second_scheduler_is_configured_by_the_mounted_file() -> None:
    """Its lease is its own, and its requests are not throttled below the extender's pace."""
    rendered = chart()
    pod = dict(rendered.pods())["scheduler"]
    found = container(rendered, "scheduler", "kube-scheduler")
    assert found["command"][:3] == [
        "kube-scheduler",
        "--config=/etc/gpushare/config.yaml",
        "--v=2",
    ]
    assert {"name": "config", "mountPath": "/etc/gpushare", "readOnly": True} in (
        found["volumeMounts"]
    )
    (volume,) = (item for item in pod["volumes"] if item["name"] == "config")
    assert volume["configMap"] == {"name": "gpushare-scheduler"}
    config = rendered.scheduler_config()
    assert config["clientConnection"] == {"qps": 200, "burst": 400}
    assert config["leaderElection"] == {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceNamespace": NAMESPACE,
        "resourceName": "gpushare-scheduler",
        "leaseDuration": "15s",
        "renewDeadline": "10s",
        "retryPeriod": "2s",
    }


@pytest.mark.slow
def test_static_sets_restart_the_extender() -> None:
    """It reads them once, so its pods carry their digest."""

    def digest(gpu: int) -> str:
        sets = {"topology": {"staticSets": {"t": {"2": [[0, gpu]]}}}}
        template = chart(**sets).one("Deployment", "-scheduler")["spec"]["template"]
        return str(template["metadata"]["annotations"]["gpushare/topology-digest"])

    assert digest(1) == digest(1) != digest(2)


@pytest.mark.slow
def test_roles_of_a_namespace_are_where_their_objects_are() -> None:
    """A Role of another namespace would grant nothing of what its account needs."""
    rendered = chart(unhealthyConfigMaps=True, devicePlugin={"unhealthyConfigMap": True})
    places = {
        item["metadata"]["name"].removeprefix("gpushare-"): item["metadata"]["namespace"]
        for kind in ("Role", "RoleBinding")
        for item in rendered.of(kind)
    }
    assert places == {
        "certificates": NAMESPACE,
        "extender-unhealthy-gpus": "kube-system",
        "device-plugin-unhealthy-gpus": "kube-system",
        "webhook-unhealthy-gpus": "kube-system",
        "dashboard-listed-gpus": "kube-system",
        "scheduler-authentication-reader": "kube-system",
        "scheduler-leader-election": NAMESPACE,
        "extender-mix": NAMESPACE,
        "dashboard-mix-reader": NAMESPACE,
        "dashboard-usage": NAMESPACE,
        "usage-reader": NAMESPACE,
    }
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for item in rendered.of(kind):
            assert [each["namespace"] for each in item["subjects"]] == [NAMESPACE]


def test_only_the_lease_of_the_scheduler_can_be_changed() -> None:
    """The right to update is limited to one name; creation cannot be."""
    role = chart().one("Role", "-leader-election")
    assert role["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["gpushare-scheduler"],
            "verbs": ["get", "update"],
        },
    ]
