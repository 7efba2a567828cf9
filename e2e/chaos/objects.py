"""The objects that a chaos run creates."""

from typing import Any, Final

from chaos.kubelet import RUN_SECONDS

SCHEDULER: Final = "chaos"

Object = dict[str, Any]


def pod_object(name: str, containers: list[dict[str, int]], *, seconds: int = 0) -> Object:
    """A pod for the scheduler with these amounts by container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {RUN_SECONDS: str(seconds)} if seconds else {},
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": f"c{number}",
                    "image": "none",
                    "resources": {"limits": {key: str(value) for key, value in one.items()}},
                }
                for number, one in enumerate(containers)
            ],
        },
    }


def node_object(name: str) -> dict[str, Any]:
    """A node as a kubelet registers it, before any plugin came."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "250"}
    labels = {"kubernetes.io/hostname": name, "gpushare": "true", "gputopology": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "ChaosNode"}],
        },
    }
