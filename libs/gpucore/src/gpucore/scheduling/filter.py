"""The filter over thousands of nodes.

:func:`filter_nodes` uses the aggregates of the nodes, one dictionary look-up a node for a plain
share, and agrees with :func:`gpucore.scheduling.fit.fit`, which the tests verify. It reserves
nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from gpucore.accounting.node_infos import NodeInfos
from gpucore.model import Code, FitError, PodRequest
from gpucore.scheduling.fit import fit, is_plain
from gpucore.units import NodeName


class NodeFitErrors(Mapping[NodeName, FitError]):
    """Refusals by node, each computed when it is read: read them before the next event.

    A filter over thousands of nodes refuses most of them and often needs the details of few.
    """

    def __init__(
        self,
        node_infos: NodeInfos,
        pod_request: PodRequest,
        names: Sequence[NodeName],
        fits: Sequence[NodeName],
    ) -> None:
        self._node_infos = node_infos
        self._pod_request = pod_request
        self._names = names
        self._fits = fits

    def __getitem__(self, name: NodeName) -> FitError:
        if name not in self._unfit:
            raise KeyError(name)
        node_info = self._node_infos.node(name)
        refusal = fit(node_info, self._pod_request) if node_info else None
        return refusal or FitError(name, Code.NODE_UNKNOWN, unresolvable=True)

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._unfit)

    def __len__(self) -> int:
        return len(self._unfit)

    @cached_property
    def _unfit(self) -> dict[NodeName, None]:
        fits = set(self._fits)
        return {name: None for name in self._names if name not in fits}


def filter_nodes(
    node_infos: NodeInfos, pod_request: PodRequest, names: Sequence[NodeName]
) -> tuple[list[NodeName], NodeFitErrors]:
    """Split ``names`` into nodes that can take the pod, in their order, and refusals."""
    fits = roomy_nodes(node_infos, pod_request, names)
    if not is_plain(pod_request):
        fits = [name for name in fits if _takes(node_infos, name, pod_request)]
    return fits, NodeFitErrors(node_infos, pod_request, names, fits)


def roomy_nodes(
    node_infos: NodeInfos, pod_request: PodRequest, names: Iterable[NodeName]
) -> list[NodeName]:
    """The nodes with :func:`gpucore.scheduling.fit.has_room`, by published aggregates."""
    if pod_request.gpus:
        combines, need = pod_request.combines_gpus, pod_request.gpus
        counts = node_infos.free_full_gpu_counts if combines else node_infos.free_gpu_counts
        room = counts.get
    else:
        room, need = node_infos.largest_shares.get, -(-pod_request.mem // pod_request.gpu_count)
    return [name for name in names if room(name, -1) >= need]


def _takes(node_infos: NodeInfos, name: NodeName, pod_request: PodRequest) -> bool:
    node_info = node_infos.node(name)
    return node_info is not None and fit(node_info, pod_request) is None
