"""Memory in use for a command: from Prometheus where it is given, else from the device plugins."""

from typing import Annotated

import typer

from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.commands.options.reading import Reader
from gpuinspect.queries.memory_in_use import IN_A_SNAPSHOT, Figures, MemoryInUse, memory_in_use
from gpuinspect.sources.prometheus import gpu_figures, pod_figures

Prometheus = Annotated[
    str,
    typer.Option(
        envvar="GPUSHARE_PROMETHEUS",
        help="address of Prometheus for memory in use, such as http://localhost:9090; default: the"
        " device plugins report it",
        metavar="URL",
    ),
]


def measured(reader: Reader, snapshot: Snapshot, prometheus: str = "") -> MemoryInUse:
    """Memory in use of GPUs and pods.

    Args:
        prometheus: address of Prometheus, if any.

    Raises:
        PrometheusError: Prometheus does not respond.
        ConfigError: no credentials are found.
    """
    if prometheus:
        return MemoryInUse(from_prometheus(prometheus))
    if reader.source.snapshot is not None:
        return MemoryInUse(note=IN_A_SNAPSHOT)
    with reader.source.connect() as kube:
        return memory_in_use(kube, snapshot)


def from_prometheus(url: str) -> Figures:
    """Memory in use of pods and GPUs.

    Raises:
        PrometheusError: Prometheus does not respond.
    """
    return Figures(pods=pod_figures(url), gpus=gpu_figures(url).used_bytes)
