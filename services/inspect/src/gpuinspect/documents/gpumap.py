"""JSON of the map of GPUs, which the dashboard serves at ``/api/v1/gpus``."""

from collections.abc import Sequence

import msgspec

from gpucore.wire.documents import API_VERSION
from gpuinspect.queries.gpumap import CellGroup


class GpuMapDoc(msgspec.Struct, frozen=True, rename="camel"):
    """Every GPU of the cluster in groups; memory is in GiB.

    ``taken`` is when the cluster was read, RFC 3339. ``error`` is why it cannot be read since then,
    so that the document is stale; empty while reads succeed. ``fitGiB`` is the size that ``fits``
    of each GPU is about; 0 where none was given. The name of a group is empty for nodes without the
    label.
    """

    api_version: str
    kind: str
    taken: str
    error: str
    group_by: str
    fit_gib: int = msgspec.field(name="fitGiB")
    groups: tuple[CellGroup, ...]


def gpu_map_doc(
    groups: Sequence[CellGroup], *, taken: str, error: str, group_by: str, fit_gib: int
) -> GpuMapDoc:
    """The document of these groups."""
    return GpuMapDoc(
        api_version=API_VERSION,
        kind="GpuMap",
        taken=taken,
        error=error,
        group_by=group_by,
        fit_gib=fit_gib,
        groups=tuple(groups),
    )
