"""Pods and nodes from the API server's bytes."""

import json
from typing import Any

import pytest

from gpucore.wire.errors import WireError
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import Container, decode_pod

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {
        "uid": "u",
        "namespace": "ns",
        "name": "p",
        "annotations": {"a": "1"},
        "labels": {"l": "2"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "deletionGracePeriodSeconds": 30,
        "resourceVersion": "77",
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "nodeName": "n",
        "schedulerName": "gpushare",
        "priority": 5,
        "containers": [
            {
                "name": "c",
                "image": "x",
                "resources": {"limits": {"aliyun.com/gpu-mem": "8"}, "requests": {"cpu": "100m"}},
                "env": [{"name": "A", "value": "1"}, {"name": "B"}],
            }
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
    },
    "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"},
}


def test_a_pod_is_narrowed() -> None:
    """Every field that accounting reads arrives, the rest is dropped."""
    pod = decode_pod(json.dumps(POD).encode())
    assert (pod.uid, pod.namespace, pod.name, pod.node) == ("u", "ns", "p", "n")
    assert (pod.annotations, pod.labels) == ({"a": "1"}, {"l": "2"})
    assert (pod.scheduler_name, pod.priority, pod.resource_version) == ("gpushare", 5, "77")
    assert pod.creation == "2026-01-01T00:00:00Z"
    assert (pod.terminating, pod.finished) == (True, True)
    assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")
    assert pod.message == "no GPU"
    limits, requests = {"aliyun.com/gpu-mem": "8"}, {"cpu": "100m"}
    assert pod.containers == (Container("c", limits, requests, env=("A", "B")),)
    assert pod.init_containers == (Container("i", restart_policy="Always"),)


def test_an_empty_pod_has_defaults() -> None:
    """A pod with nothing but metadata, or with nulls, is a pod that requests nothing."""
    bare = decode_pod(b'{"metadata":{"uid":"u","namespace":"ns","name":"p"}}')
    nulls = decode_pod(
        b'{"metadata":{"uid":"u","namespace":"ns","name":"p","labels":null,"annotations":null},'
        b'"spec":{"nodeName":null,"containers":null,"initContainers":null},"status":{}}'
    )
    assert bare == nulls
    assert (bare.node, bare.phase, bare.terminating, bare.finished) == ("", "", False, False)
    assert (bare.containers, bare.annotations, bare.priority) == ((), {}, 0)


NODE: dict[str, Any] = {
    "metadata": {
        "name": "n",
        "labels": {"gpushare": "true"},
        "annotations": {"a": "1"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "9",
    },
    "spec": {"unschedulable": True},
    "status": {
        "capacity": {"aliyun.com/gpu-mem": "30"},
        "allocatable": {"aliyun.com/gpu-mem": "15"},
        "addresses": [
            {"type": "Hostname", "address": "h"},
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "InternalIP", "address": "10.0.0.2"},
        ],
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True"},
        ],
    },
}


def test_a_node_is_narrowed() -> None:
    """Every field that accounting reads arrives; of several addresses the first."""
    node = decode_node(json.dumps(NODE).encode())
    assert (node.name, node.labels, node.annotations) == ("n", {"gpushare": "true"}, {"a": "1"})
    assert node.capacity == {"aliyun.com/gpu-mem": "30"}
    assert node.allocatable == {"aliyun.com/gpu-mem": "15"}
    assert (node.address, node.unschedulable, node.ready) == ("10.0.0.1", True, True)
    assert node.resource_version == "9"


def test_an_empty_node_has_defaults() -> None:
    """A node with nothing but a name offers nothing and is not ready."""
    node = decode_node(b'{"metadata":{"name":"n"}}')
    assert (node.address, node.unschedulable, node.ready, node.capacity) == ("", False, False, {})


@pytest.mark.parametrize(
    "status", [[{"type": "Ready", "status": "Unknown"}], [{"type": "Other", "status": "True"}]]
)
def test_only_the_condition_ready_makes_ready(status: list[dict[str, str]]) -> None:
    """Ready is the condition Ready with status True."""
    text = json.dumps({"metadata": {"name": "n"}, "status": {"conditions": status}})
    assert not decode_node(text.encode()).ready


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"metadata":{"uid":1,"name":1}}',
        b'{"metadata":{"name":"\xff"}}',
        b"[" * 200_000,
        b'{"metadata":{"name":"n"},"x":' + b"[" * 200_000,
        (
            b'{"metadata":{},"status":{"capacity":{"a":"x y"}},"spec":{"containers":'
            b'[{"resources":{"limits":{"a":"x y"}}}]}}'
        ),
    ],
)
def test_other_bytes_are_the_modules_error(raw: bytes) -> None:
    """Bytes that are no object raise WireError and say what was expected."""
    with pytest.raises(WireError, match="no pod"):
        decode_pod(raw)
    with pytest.raises(WireError, match="no node"):
        decode_node(raw)


def test_a_pod_names_its_claims_whoever_made_them() -> None:
    """Given by name, made from a template, or made by kube-scheduler for an extended resource."""
    pod = {
        "metadata": {"uid": "u", "namespace": "ns", "name": "p"},
        "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "own"}, {"name": "b"}]},
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x1"}, {"name": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "p-extended-resources-y2"},
        },
    }
    found = decode_pod(json.dumps(pod).encode())
    assert found.claims == ("own", "p-b-x1", "p-extended-resources-y2")
    assert decode_pod(b'{"metadata":{"uid":"u","namespace":"ns","name":"p"}}').claims == ()
