"""Namespaces, quotas and limits as the API server writes them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpucore.wire.errors import WireError
from gpucore.wire.namespaces import (
    CountedResources,
    Namespace,
    decode_limit_range,
    decode_namespace,
    decode_quota,
)

META = {"name": "n", "namespace": "team", "resourceVersion": "7"}


def raw(**more: Any) -> bytes:
    """An object."""
    return json.dumps({"metadata": META, **more}).encode()


def test_a_namespace_has_its_annotations() -> None:
    """None where the object has none."""
    meta = {"name": "team", "annotations": {"a": "b"}, "resourceVersion": "7"}
    found = decode_namespace(json.dumps({"metadata": meta, "spec": {}}).encode())
    assert found == Namespace("team", {"a": "b"}, "7")
    assert decode_namespace(b'{"metadata":{"name":"x","annotations":null}}').annotations == {}


def test_a_quota_counts_the_requests_of_a_resource() -> None:
    """Its amounts may be numbers or text."""
    hard = {"requests.aliyun.com/gpu-mem": "16", "pods": 4}
    found = decode_quota(raw(spec={"hard": hard}))
    assert found == CountedResources("team", "n", frozenset({"aliyun.com/gpu-mem", "pods"}), "7")
    assert decode_quota(raw()).resources == frozenset()
    assert decode_quota(raw(spec={"hard": None})).resources == frozenset()


def test_a_limit_range_counts_resources_with_a_minimum_or_maximum() -> None:
    """A default alone refuses no pod."""
    limits = [
        {"type": "Container", "max": {"aliyun.com/gpu-mem": 8}, "default": {"cpu": "1"}},
        {"type": "Pod", "min": {"memory": "1Gi"}},
    ]
    found = decode_limit_range(raw(spec={"limits": limits}))
    assert found.resources == {"aliyun.com/gpu-mem", "memory"}
    assert decode_limit_range(raw(spec={"limits": None})).resources == frozenset()


@pytest.mark.parametrize("decode", [decode_namespace, decode_quota, decode_limit_range])
@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"metadata": 1}', b"\xff"])
def test_other_bytes_are_an_error(decode: Callable[[bytes], Any], text: bytes) -> None:
    """Of one kind."""
    with pytest.raises(WireError):
        decode(text)
