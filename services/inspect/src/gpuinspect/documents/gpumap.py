"""JSON of the map of GPUs, which the dashboard serves at ``/api/v1/gpus``."""

import msgspec

from gpucore.wire.documents import Document
from gpuinspect.queries.gpumap import CellGroup


class GpuMapDoc(Document, frozen=True):
    """Every GPU of the cluster in groups; memory is in GiB.

    ``taken`` is when the cluster was read, RFC 3339. ``error`` is why it cannot be read since then,
    so that the document is stale; empty while reads succeed. ``fitGiB`` is the size that ``fits``
    of each GPU is about; 0 where none was given. The name of a group is empty for nodes without the
    label.
    """

    taken: str
    error: str
    group_by: str
    fit_gib: int = msgspec.field(name="fitGiB")
    groups: tuple[CellGroup, ...]
