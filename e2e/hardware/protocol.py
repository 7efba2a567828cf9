"""The messages between kubelet and a device plugin, from the published ``.proto`` files.

They are compiled here into a pool of their own, so that the suite speaks the protocol as a kubelet
does and shares no generated code with the plugin.
"""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc  # type: ignore[import-untyped]

FOLDER: Final = (
    Path(__file__).parents[2] / "services" / "deviceplugin" / "src" / "gpudeviceplugin" / "proto"
)
PLUGIN: Final = "v1beta1"
POD_RESOURCES: Final = "v1"


class ProtocolError(Exception):
    """The files could not be compiled."""


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        sources = sorted(str(path) for path in FOLDER.glob("*.proto"))
        argv = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", *sources]
        if protoc.main(argv):
            raise ProtocolError(f"protoc refused the files in {FOLDER}")
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    return pool


@cache
def message(name: str, package: str = PLUGIN) -> Any:
    """The class of a message, such as ``AllocateRequest``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{package}.{name}"))
