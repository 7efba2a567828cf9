"""The stand-in for the plugin of 2019 speaks kubelet's API, over a real socket."""

from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from standins.original import plugin
from standins.wireformat import fields, message


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[grpc.Channel]:
    """A connection to it, on a node with two GPUs of two and one units."""
    monkeypatch.setenv("NODE_NAME", "n")
    monkeypatch.setenv("UNITS", '{"n": {"GPU-a": 2, "GPU-b": 1}}')
    monkeypatch.setenv("GPU", "1")
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((plugin.handlers(),))
    address = f"unix://{tmp_path}/socket"
    server.add_insecure_port(address)
    server.start()
    with grpc.insecure_channel(address, options=plugin.LOCAL) as found:
        yield found
    server.stop(None).wait()


def test_every_container_is_given_the_gpu_of_the_annotation(channel: grpc.Channel) -> None:
    """Two requests get two responses with the environment of 2019."""
    ids = message((1, "GPU-a-_-0"))
    call: Callable[..., bytes] = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
    reply = call(message((1, ids), (1, ids)), timeout=30)
    granted = [dict(_entry(raw) for _, raw in fields(one)) for _, one in fields(reply)]
    assert granted == [{"NVIDIA_VISIBLE_DEVICES": "1", "ALIYUN_COM_GPU_MEM_IDX": "1"}] * 2


def test_no_later_call_is_wanted(channel: grpc.Channel) -> None:
    """The options of 2019 are empty: no preferred allocation."""
    name = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
    call: Callable[..., bytes] = channel.unary_unary(name)
    assert call(b"", timeout=30) == b""


def _entry(raw: bytes) -> tuple[str, str]:
    (_, key), (_, value) = fields(raw)
    return key.decode(), value.decode()
