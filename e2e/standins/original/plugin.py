"""Stands in for the device plugin of 2019 on a node, for the cases about taking over from it.

As that one: device ids that name a GPU but are handed out in any order, no preferred allocation,
and an environment that names the GPU of the pod's annotation by index. Here every container gets
the GPU in GPU, the one in the annotation of the recorded pod. It runs in the image of our plugin,
which has gRPC. UNITS has the size of each GPU by node and uuid; NODE_NAME names the node.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from standins.wireformat import fields, message

FOLDER = "/var/lib/kubelet/device-plugins"
SOCKET = "aliyungpushare.sock"
LOCAL = [("grpc.default_authority", "localhost")]
SERVICE = "v1beta1.DevicePlugin"
REGISTER = "/v1beta1.Registration/Register"
# Numbers of fields, by message.
DEVICES = 1  # ListAndWatchResponse
ID, HEALTH = 1, 2  # Device
REQUESTS = 1  # AllocateRequest
RESPONSES = 1  # AllocateResponse
ENVS = 1  # ContainerAllocateResponse
KEY, VALUE = 1, 2  # an entry of a map
VERSION, ENDPOINT, RESOURCE_NAME = 1, 2, 3  # RegisterRequest

Context = Any


def options(_request: bytes, _context: Context) -> bytes:
    """None of the later calls is wanted."""
    return b""


def list_and_watch(_request: bytes, _context: Context) -> Iterator[bytes]:
    """All units of all GPUs, once."""
    gpus = json.loads(os.environ["UNITS"])[os.environ["NODE_NAME"]]
    ids = [f"{uuid}-_-{unit}" for uuid, units in gpus.items() for unit in range(units)]
    yield message(*((DEVICES, message((ID, one), (HEALTH, "Healthy"))) for one in ids))
    threading.Event().wait()


def answer_allocate(request: bytes, _context: Context) -> bytes:
    """The annotation's GPU, whatever the ids are."""
    gpu = os.environ["GPU"]
    envs = {"NVIDIA_VISIBLE_DEVICES": gpu, "ALIYUN_COM_GPU_MEM_IDX": gpu}
    response = message(*((ENVS, message((KEY, key), (VALUE, envs[key]))) for key in envs))
    requests = [number for number, _ in fields(request) if number == REQUESTS]
    return message(*((RESPONSES, response) for _ in requests))


def handlers() -> grpc.GenericRpcHandler:
    """The calls that kubelet makes, with bytes in and out."""
    unary: Callable[..., Any] = grpc.unary_unary_rpc_method_handler
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "GetDevicePluginOptions": unary(options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
            "Allocate": unary(answer_allocate),
        },
    )


def main() -> None:
    """Serve, register, and stay."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((handlers(),))
    path = Path(FOLDER, SOCKET)
    path.unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{path}")
    server.start()
    request = message(
        (VERSION, "v1beta1"), (ENDPOINT, SOCKET), (RESOURCE_NAME, "aliyun.com/gpu-mem")
    )
    with grpc.insecure_channel(f"unix://{FOLDER}/kubelet.sock", options=LOCAL) as channel:
        register: Callable[..., bytes] = channel.unary_unary(REGISTER)
        register(request, timeout=30)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
