"""The chart of model servers, rendered with a model and a share that the tests need not repeat."""

from typing import Any

from charting import SERVING, Object, Rendered, render

SERVERS = ("tensorflow", "triton", "torchserve", "vllm", "custom")
MODEL = {"modelName": "mnist", "modelPath": "/models/mnist", "gpuMemory": 3}
SCHEMAS = ("1.25", "1.34")
"""Of the oldest version whose schemas are at hand, and of a new one."""


def serve(server: str = "tensorflow", version: str = "1.34.0", **values: Any) -> Rendered:
    """A release `mnist` of one server with a share of 3 units."""
    own = {"image": "own:1", "command": "run --on $PORT"} if server == "custom" else {}
    every = {"server": server, **MODEL, **own, **values}
    return render(version, every, chart=SERVING, release="mnist")


def container(rendered: Rendered) -> Object:
    """The one container of the pods."""
    (pod,) = [spec for _, spec in rendered.pods()]
    (found,) = pod["containers"]
    return dict(found)
