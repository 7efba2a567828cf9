"""A link matrix as a table, in the layout of the original's ``kubectl inspect gpu``."""

from collections.abc import Collection
from typing import Final

from gpucore.model.links import Matrix
from gpucore.wire.node.matrices import shown

RULE: Final = "-" * 40
_WIDTH: Final = 5

LEGEND: Final = """\
Legend:

  X    = the GPU itself, or a GPU in use
  SYS  = across CPU sockets
  NODE = within a CPU socket, across its PCIe host bridges
  PHB  = through a PCIe host bridge, as a rule the CPU
  PXB  = through several PCIe switches, without a host bridge
  PIX  = through one PCIe switch
  PSB  = on one board
  NV#  = NVLinks, and how many
  N-A  = no link is known
"""


def draw(matrix: Matrix, used: Collection[int] = ()) -> str:
    """The table of links; rows and columns of ``used`` GPUs show X, as the original shows them."""
    header = " " * _WIDTH + "".join(f" GPU{gpu}" for gpu in matrix.gpus)
    return "\n".join([header, *(_row(matrix, gpu, used) for gpu in matrix.gpus)]) + "\n"


def _row(matrix: Matrix, gpu: int, used: Collection[int]) -> str:
    cells = (
        "X" if gpu == other or {gpu, other} & set(used) else shown(matrix, gpu, other)
        for other in matrix.gpus
    )
    widths = (len(f" GPU{other}") for other in matrix.gpus)
    row = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"GPU{gpu}".ljust(_WIDTH) + row
