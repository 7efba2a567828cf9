# ruff: noqa: INP001 - a tool beside the package
"""Makes messages from the protocol files; the committed ones must equal what it makes.

Run it after a change to a ``.proto`` file: ``.venv/bin/python services/deviceplugin/stubs.py``.
The generator's version is pinned with the runtime's, since messages refuse an older runtime.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parent / "src"
PROTOCOLS = (
    "deviceplugin",
    "podresources",
    "pluginregistration",
    "dra_v1",
    "dra_health_v1",
)
MADE = ("_pb2.py", "_pb2.pyi")


def generate(output: Path) -> None:
    """Write the messages of every protocol below ``output``, by their package path.

    Raises:
        RuntimeError: the generator refused a file; its words are on stderr.
    """
    for name in PROTOCOLS:
        arguments = [
            "protoc",
            f"-I{SOURCE}",
            f"--python_out={output}",
            f"--pyi_out={output}",
            f"gpudeviceplugin/proto/{name}.proto",
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"no messages for {name}.proto")


if __name__ == "__main__":
    generate(SOURCE)
    sys.exit(0)
