"""A sound installation for ``gpushare doctor``, and ways to break it."""

import json
from typing import Any

from claimobjects import device, device_class, resource_slice
from drawncluster import FakeCluster, Gpu

from gpukube.testing.plugin_pods import plugin_pod

PREFIX = "app.kubernetes.io"
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: gpushare-scheduler}]
extenders:
- filterVerb: filter
  bindVerb: bind
  managedResources:
  - name: aliyun.com/gpu-mem
  - name: aliyun.com/gpu-core.percentage
  - name: aliyun.com/gpu
"""
CONFIRMED = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}


def stack_pod(
    cluster: FakeCluster,
    name: str,
    component: str,
    container: str,
    node: str,
    *,
    namespace: str = "gpushare",
) -> None:
    """A ready pod of our own, or of a tenant that gives it the same labels."""
    labels = {f"{PREFIX}/component": component, f"{PREFIX}/version": "0.1.0"}
    cluster.pod(
        name,
        node=node,
        namespace=namespace,
        metadata={"labels": labels},
        spec={"containers": [{"name": container}]},
        status={"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{}]},
    )


def plugin(cluster: FakeCluster, name: str, node: str, namespace: str = "gpushare") -> None:
    """A ready pod of the device plugin."""
    stack_pod(cluster, name, "device-plugin", "device-plugin", node, namespace=namespace)
    spec = plugin_pod(name, node)["spec"]
    cluster.items[-1]["spec"].update(volumes=spec["volumes"], containers=spec["containers"])


def nvidia_plugin(
    cluster: FakeCluster, node: str, name: str = "nvidia-device-plugin-x", **fields: Any
) -> None:
    """A pod of NVIDIA's device plugin."""
    spec = {"volumes": plugin_pod(name, node)["spec"]["volumes"]}
    cluster.pod(name, node=node, **{"namespace": "kube-system", "spec": spec, **fields})


def nominating(cluster: FakeCluster) -> None:
    """The extenders nominate nodes, with the rights and the policy of the chart."""
    account = "system:serviceaccount:gpushare:default"
    for name in ("n1", "n2"):
        spec = item(cluster, f"scheduler-{name}")["spec"]
        spec["containers"][0]["args"] = ["--port=1", "--nominate=refused"]
        scheduler = "registry.k8s.io/kube-scheduler:v1.37.1"
        spec["containers"].append({"name": "kube-scheduler", "image": scheduler})
    rule = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "gpushare"}
    ref = {"kind": "ClusterRole", "name": "extender-role"}
    cluster.add({"kind": "ClusterRole", "metadata": {"name": "extender-role"}, "rules": [rule]})
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "extender-binding"}}
    cluster.add({**binding, "roleRef": ref, "subjects": [subject]})
    policy = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "extender-policy"}}
    condition = {"expression": f"request.userInfo.username == '{account}'"}
    fields = {"name": "fields", "expression": "['conditions', 'nominatedNodeName']"}
    cluster.add({**policy, "spec": {"matchConditions": [condition], "variables": [fields]}})
    binding = {"kind": f"{policy['kind']}Binding", "metadata": {"name": "extender-limit"}}
    spec = {"policyName": "extender-policy", "validationActions": ["Deny"]}
    cluster.add({**binding, "spec": spec})


def alone(cluster: FakeCluster) -> None:
    """The cluster's own scheduler calls the extenders."""
    for name in ("n1", "n2"):
        item(cluster, f"scheduler-{name}")["spec"]["containers"].pop()


def sound() -> FakeCluster:
    """Two nodes with all of the stack, and a pod on a GPU."""
    cluster = FakeCluster()
    for name in ("n1", "n2"):
        cluster.node(name, gpus=[Gpu(15), Gpu(15)])
        versions = {"kubeletVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2.1.0"}
        cluster.items[-1]["status"]["nodeInfo"] = versions
        plugin(cluster, f"plugin-{name}", name)
        stack_pod(cluster, f"scheduler-{name}", "scheduler", "extender", name)
    stack_pod(cluster, "webhook-n1", "webhook", "webhook", "n1")
    cluster.pod("p", 3, node="n1", index=0, annotations=CONFIRMED)
    data = {"config.yaml": CONFIGURATION}
    cluster.add(
        {"kind": "ConfigMap", "metadata": {"name": "s", "namespace": "gpushare"}, "data": data}
    )
    cluster.add({"kind": "RuntimeClass", "metadata": {"name": "nvidia"}})
    nominating(cluster)
    hook = {"name": "w", "clientConfig": {"caBundle": "Cg=="}, "failurePolicy": "Ignore"}
    claims_node(cluster)
    webhook = {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "gpushare"}}
    return cluster.add({**webhook, "webhooks": [hook]})


def claims_node(cluster: FakeCluster) -> None:
    """A node that offers its GPU as claims, and the class of shares."""
    cluster.node("n3", resources={}, labels={"gpushare/api": "claims"})
    versions = {"kubeletVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2.1.0"}
    cluster.items[-1]["status"]["nodeInfo"] = versions
    plugin(cluster, "plugin-n3", "n3")
    cluster.add(resource_slice("n3", [device(0, 15)])).add(device_class("shares"))


def kube_scheduler(cluster: FakeCluster, *flags: str, namespace: str = "kube-system") -> None:
    """The chart is in mode extender, and this is the static pod of kube-scheduler on a node."""
    labels = {f"{PREFIX}/component": "extender"}
    item(cluster, "s")["metadata"]["labels"] = labels
    cluster.pod(
        "kube-scheduler-m1",
        namespace=namespace,
        metadata={"labels": {"component": "kube-scheduler", "tier": "control-plane"}},
        spec={"containers": [{"name": "kube-scheduler", "command": ["kube-scheduler", *flags]}]},
    )


def item(cluster: FakeCluster, name: str) -> Any:
    """The object of this name."""
    return next(each for each in cluster.items if each["metadata"]["name"] == name)


def rewrite(cluster: FakeCluster, name: str, old: str, new: str) -> None:
    """Change text anywhere in an object."""
    found = item(cluster, name)
    text = json.dumps(found)
    assert old in text
    found.clear()
    found.update(json.loads(text.replace(old, new)))


def inventory(cluster: FakeCluster, old: str, new: str) -> None:
    """Change the text of n1's inventory."""
    annotations = item(cluster, "n1")["metadata"]["annotations"]
    assert old in annotations["gpushare/inventory"]
    annotations["gpushare/inventory"] = annotations["gpushare/inventory"].replace(old, new)


def only_one(cluster: FakeCluster, prefix: str) -> None:
    """Remove the objects on n2 whose name starts so."""
    cluster.items.remove(item(cluster, f"{prefix}n2"))


def capacity(cluster: FakeCluster, **units: str) -> None:
    """Set resources of n1, ``gpu_mem`` for gpu-mem and so on."""
    for name, amount in units.items():
        resource = f"aliyun.com/{name.replace('_', '-')}"
        item(cluster, "n1")["status"]["capacity"][resource] = amount


def waiting(cluster: FakeCluster, units: int = 1, **fields: Any) -> None:
    """A pod that no node has, looked at by a scheduler."""
    status = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
    cluster.pod("w", units, phase="Pending", **{"status": status, **fields})


def unlabel(cluster: FakeCluster) -> None:
    """No node is labelled."""
    for name in ("n1", "n2", "n3"):
        item(cluster, name)["metadata"]["labels"] = {}


def original(cluster: FakeCluster, units: int) -> None:
    """n1 runs an original plugin with two GPUs of so many units."""
    del item(cluster, "n1")["metadata"]["annotations"]["gpushare/inventory"]
    capacity(cluster, gpu_mem=str(2 * units), gpu_count="2")


def unhealthy_map(cluster: FakeCluster, node: str, gpu: str = "7") -> None:
    """A ConfigMap withdraws a GPU of a node."""
    metadata = {"name": f"unhealthy-gpu-{node}", "namespace": "kube-system"}
    cluster.add({"kind": "ConfigMap", "metadata": metadata, "data": {"gpus": gpu}})
