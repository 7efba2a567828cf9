"""``gpushare whatif --add-nodes``: the answer of a cluster in which these nodes exist already."""

import json
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu

from gpucore.model import Placement
from gpucore.simulate.manifests import wanted_pods
from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.schedulers import policy_of
from gpuinspect.cluster.snapshots import decode
from gpuinspect.queries.whatif import Addition, whatif_answers

Object = dict[str, Any]
STATES = ("unschedulable", "not-ready", "unreachable", "disk-pressure")
LASTING = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def random_cluster(random: Random) -> FakeCluster:
    """Nodes that offer shares and exclusive GPUs, with pods on them, and pods that wait."""
    cluster, names = FakeCluster(), ["g0", "g1", "g2"][: random.randint(1, 3)]
    for name in names:
        gpus = [Gpu(random.choice([8, 16]))] * random.choice([1, 2, 4])
        amounts = {"gpu-mem": "64", "gpu": "4", "gpu-count": "4"}
        ours = {f"aliyun.com/{resource}": amount for resource, amount in amounts.items()}
        others = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        cluster.node(name, gpus=gpus, resources={**ours, **others})
    for number in range(random.randint(0, 14)):
        cpu = {"cpu": str(random.choice([1, 2, 4]))}
        mem, name, index = random.choice([1, 2, 4, 8]), random.choice(names), random.randint(0, 1)
        cluster.pod(f"held-{number}", mem, node=name, index=index, limits=cpu)
    for number in range(random.randint(0, 20)):
        mem = random.choice([2, 4, 8])
        cluster.pod(f"waits-{number}", mem, phase="Pending", limits={"cpu": "2"})
    return cluster


def in_a_state(random: Random, node: Object) -> None:
    """The node is cordoned or unready, has a taint of such a state, or a GPU that lacks units."""
    state = random.choice([*STATES, "unhealthy", "withheld", "away"])
    inventory = json.loads(node["metadata"]["annotations"]["gpushare/inventory"])
    if state == "unhealthy":
        inventory["gpus"][0]["healthy"] = False
    elif state == "withheld":
        inventory["gpus"][0]["withheld"] = 4
    elif state == "away":
        inventory["serving"] = False
    else:
        taint = {"key": f"node.kubernetes.io/{state}", "effect": "NoSchedule"}
        node["spec"] = {"taints": [taint, LASTING], "unschedulable": state == "unschedulable"}
        ready = "False" if state == "not-ready" else "True"
        node["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    node["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(inventory)


def deployment(random: Random) -> Object:
    """The pods of the question, which tolerate what the nodes have for good at times."""
    limits = {"aliyun.com/gpu-mem": str(random.choice([1, 2, 4, 8])), "cpu": "2"}
    spec: Object = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    if random.random() < 0.7:
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    replicas = {"replicas": random.randint(1, 6), "template": {"spec": spec}}
    return {"kind": "Deployment", "metadata": {"name": "d"}, "spec": replicas}


def placements(
    cluster: FakeCluster, manifest: Object, policy: str, addition: Addition
) -> list[Placement | None]:
    """Where the pods of the question would be placed."""
    snapshot = decode(cluster.json().encode())
    wanted = wanted_pods([deepcopy(manifest)], DEFAULT_NAMES)
    ledger, used = ledger_of(snapshot, DEFAULT_NAMES), policy_of(snapshot, policy)
    found = whatif_answers(snapshot, wanted, ledger, addition=addition, policy=used)
    return [answer.outcome.placement for answer in found]


@pytest.mark.parametrize("policy", ["binpack", "spread", "fragmentation"])
@pytest.mark.parametrize("seed", range(60))
def test_added_nodes_are_as_nodes_that_exist(seed: int, policy: str) -> None:
    """Whatever the state of the node that they are like: pods get the same places."""
    random = Random(seed)
    cluster, manifest = random_cluster(random), deployment(random)
    nodes = [item for item in cluster.items if item["kind"] == "Node"]
    count, like = random.randint(1, 2), nodes[-1]
    twins = [deepcopy(like) for _ in range(count)]
    if random.random() < 0.5:
        in_a_state(random, like)
        for twin in twins:
            taints = like["spec"].get("taints", [])
            twin["spec"] = {"taints": [taint for taint in taints if taint == LASTING]}
    real = FakeCluster()
    name = like["metadata"]["name"]
    for number, twin in enumerate(twins, start=1):
        twin["metadata"]["name"] = f"{name}+{number}"
    real.items = [*cluster.items, *twins]
    expected = placements(real, manifest, policy, Addition())
    assert placements(cluster, manifest, policy, Addition(count, name)) == expected
