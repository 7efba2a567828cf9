"""Stands in for the device plugin of 2019 on a node, for the cases about taking over from it.

As that one: device ids that name a card but are handed out in any order, no preferred allocation,
and containers that are told the card of the pod's annotation by index. Here every container is told
the card in CARD, which is what the recorded pod's annotation says. Runs in the image of our plugin,
for its protocol stubs; UNITS has the size of each card by uuid, by node, and NODE_NAME says which.
"""

import json
import os
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from gpudeviceplugin.proto import deviceplugin_pb2 as pb
from gpudeviceplugin.proto import deviceplugin_pb2_grpc as rpc

FOLDER = "/var/lib/kubelet/device-plugins"
SOCKET = "aliyungpushare.sock"
LOCAL = [("grpc.default_authority", "localhost")]


class Original(rpc.DevicePluginServicer):
    """Units of memory, interchangeable."""

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """None of the later calls is wanted."""
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802, ARG002
        """All units of all cards, once."""
        cards = json.loads(os.environ["UNITS"])[os.environ["NODE_NAME"]]
        ids = [f"{uuid}-_-{unit}" for uuid, units in cards.items() for unit in range(units)]
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=one, health="Healthy") for one in ids])
        threading.Event().wait()

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """The annotation's card, whatever the ids are."""
        card = os.environ["CARD"]
        envs = {"NVIDIA_VISIBLE_DEVICES": card, "ALIYUN_COM_GPU_MEM_IDX": card}
        answers = [pb.ContainerAllocateResponse(envs=envs) for _ in request.container_requests]
        return pb.AllocateResponse(container_responses=answers)


def main() -> None:
    """Serve, register, and stay."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    rpc.add_DevicePluginServicer_to_server(Original(), server)  # type: ignore[no-untyped-call]
    path = Path(FOLDER, SOCKET)
    path.unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{path}")
    server.start()
    with grpc.insecure_channel(f"unix://{FOLDER}/kubelet.sock", options=LOCAL) as channel:
        rpc.RegistrationStub(channel).Register(  # type: ignore[no-untyped-call]
            pb.RegisterRequest(
                version="v1beta1", endpoint=SOCKET, resource_name="aliyun.com/gpu-mem"
            )
        )
    server.wait_for_termination()


if __name__ == "__main__":
    main()
