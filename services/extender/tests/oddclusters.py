"""Random clusters of nodes and pods, as an API server has them: all that an explanation reads."""

import copy
from random import Random
from typing import Any, Final

from objects import node, placed, pod

Object = dict[str, Any]
ZONES: Final = ("a", "b")
MESSAGE: Final = "0/5 nodes are available"
TAINT: Final = {"key": "dedicated", "value": "research", "effect": "NoSchedule"}
CPUS: Final = ("500m", "2", "3")


def odd_node(random: Random, name: str) -> Object:
    """A node: of ours or of the original's, with or without GPUs, in any state."""
    gpus = [random.choice((8, 15, 39)) for _ in range(random.choice((0, 1, 2, 2, 3, 4)))]
    unit = random.choice(("GiB", "GiB", None))
    if unit is None:
        gpus = gpus[:1] * len(gpus)
    found = node(name, *gpus, unit=unit if gpus else None, zone=random.choice(ZONES))
    sizes = {
        "cpu": random.choice(("4", "8")),
        "memory": "16Gi",
        "pods": random.choice(("9", "110")),
    }
    whole = {"aliyun.com/gpu": str(len(gpus))} if gpus and random.random() < 0.6 else {}
    found["status"]["capacity"] = found["status"]["capacity"] | sizes | whole
    found["status"]["allocatable"] = found["status"]["capacity"]
    ready = "True" if random.random() < 0.95 else "False"
    found["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    found["spec"] = {
        "unschedulable": random.random() < 0.05,
        "taints": [TAINT] if random.random() < 0.1 else [],
    }
    return found


def odd_pod(random: Random, name: str) -> Object:
    """A pod that waits, with requirements of every kind that is evaluated."""
    amount = random.choice((4, 8, 12, 13, 14, 14, 20, 30, 50))
    more: Object = {"labels": {}, "annotations": {}, "namespace": random.choice(ZONES)}
    if random.random() < 0.3:
        more["annotations"]["gpushare/policy"] = random.choice(("binpack", "spread", "best"))
    if random.random() < 0.2:
        more["labels"]["aliyun.com/gpu-count"] = random.choice(("2", "3"))
    if random.random() < 0.3:
        more["namespace"] = "a"
        more["labels"] |= {"pod-group.scheduling.sigs.k8s.io/name": "ring"}
        more["labels"] |= {"pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    gpus = random.choice((0, 0, 0, 1, 3))
    found = pod(name, *(() if gpus else (amount,)), gpus=gpus, uid=f"uid-{name}", **more)
    _require(random, found["spec"])
    if random.random() < 0.5:
        condition = {"type": "PodScheduled", "status": "False", "message": MESSAGE}
        found["status"]["conditions"] = [condition]
    return found


def _require(random: Random, spec: Object) -> None:
    if random.random() < 0.2:
        spec["nodeSelector"] = {"zone": random.choice(ZONES)}
    if random.random() < 0.3:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if random.random() < 0.05:
        spec["schedulingGates"] = [{"name": "example.com/quota"}]
    if random.random() < 0.5:
        spec["containers"][0]["resources"]["requests"] = {"cpu": random.choice(CPUS)}
    if random.random() < 0.2:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]


def _nominate(random: Random, waiting: Object, nodes: list[Object]) -> None:
    """Give the pod a priority; and perhaps a node on which others are evicted for it."""
    waiting["spec"]["priority"] = random.choice((0, 0, 5))
    if random.random() < 0.3:
        waiting["status"]["nominatedNodeName"] = random.choice(nodes)["metadata"]["name"]


def odd_cluster(random: Random) -> tuple[list[Object], list[Object]]:
    """Nodes, and pods that hold GPUs, hold only other resources, have ended, or wait."""
    nodes = [odd_node(random, f"n{number}") for number in range(random.randint(1, 6))]
    pods = [odd_pod(random, f"waits-{number}") for number in range(4)]
    shared = [each for each in nodes if "aliyun.com/gpu-mem" in each["status"]["capacity"]]
    for number in range(random.randint(4, 24)):
        item = pod(f"held-{number}", random.randint(3, 12), uid=f"uid-held-{number}")
        where = random.choice(shared or nodes)["metadata"]["name"]
        found = placed(item, where, random.randint(0, 3))
        if random.random() < 0.1:
            found["metadata"]["annotations"] = {}
        if random.random() < 0.1:
            found["status"] = {"phase": "Succeeded"}
        pods.append(found)
    for each in pods[:4]:
        _nominate(random, each, nodes)
    for number in range(random.randint(0, 4)):
        item = pod(f"cpu-{number}", uid=f"uid-cpu-{number}")
        item["spec"]["nodeName"] = random.choice(nodes)["metadata"]["name"]
        item["spec"]["containers"][0]["resources"] = {"requests": {"cpu": random.choice(CPUS)}}
        pods.append(item)
    return nodes, copy.deepcopy(pods)


def odd_question(random: Random) -> list[Object]:
    """Pods of a what-if question."""
    return [
        {
            "name": f"new-{number}",
            **random.choice(({"mem": 3}, {"mem": 14, "core": 20}, {"gpus": 2}, {"mem": 60})),
            "replicas": random.choice((1, 3)),
            "policy": random.choice(("", "spread")),
            "priority": random.choice((0, 5)),
        }
        for number in range(3)
    ]


def manifest_of(question: list[Object]) -> Object:
    """The same pods as Deployments."""
    names = {"mem": "aliyun.com/gpu-mem", "core": "aliyun.com/gpu-core.percentage"}
    names |= {"gpus": "aliyun.com/gpu"}
    items = []
    for each in question:
        limits = {names[key]: str(each[key]) for key in names if key in each}
        policy = {"gpushare/policy": each["policy"]} if each["policy"] else {}
        template: Object = {
            "metadata": {"annotations": policy},
            "spec": {
                "priority": each["priority"],
                "containers": [{"name": "c", "resources": {"limits": limits}}],
            },
        }
        spec = {"replicas": each["replicas"], "template": template}
        items.append({"kind": "Deployment", "metadata": {"name": each["name"]}, "spec": spec})
    return {"kind": "List", "items": items}


def odd_manifest(random: Random) -> Object:
    """A Deployment whose pods require more than GPUs."""
    found = odd_pod(random, "made")
    template = {"metadata": found["metadata"] | {"namespace": ""}, "spec": found["spec"]}
    spec = {"replicas": 2, "template": template}
    return {"kind": "Deployment", "metadata": {"name": "made"}, "spec": spec}
