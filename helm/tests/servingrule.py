"""GPU memory fraction of a model server, computed from its share.

Frameworks limit themselves to a fraction of *the GPU*, and count their own tensors only: the CUDA
context of each process is not included. Guaranteed is, for every GPU that is reported as ``gpu``
units (so is at least ``gpu`` and less than ``gpu + 1`` units large, besides what the operator keeps
of it, which the plugin's own fraction tells)::

    processes x (fraction x size of the GPU + head-room)  <=  share

with a fraction above 0, which frameworks read as "no limit". Not guaranteed: that a framework
respects its fraction, or that its context fits the head-room; only MPS or the driver can enforce a
share.

The chart's start script computes the same in a container, where there may be no Python; its tests
compare it with this file.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.units import GIB, MemoryUnit
from gpucore.wire import names as wire_names
from gpucore.wire.names import DEFAULT_NAMES, Names
from gpuinspect.serving.request import CONTEXT_MIB

_PLACES: Final = 6
_WHOLE: Final = 10**_PLACES
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_FRACTION: Final = re.compile(r"[01]\.[0-9]{4}")
_INDEXES: Final = re.compile(r"[0-9]+(,[0-9]+)*")


class Share(msgspec.Struct, frozen=True):
    """The share of a container on each of its GPUs.

    Attributes:
        units: on each GPU.
        gpu: units of one GPU, as the plugin reports it.
        unit: size of one unit.
        parts: ten-thousandths of the GPU that the plugin says it is; 0 where it says none.
    """

    units: int
    gpu: int
    unit: MemoryUnit
    parts: int = 0

    @property
    def mib(self) -> int:
        """MiB on each GPU."""
        return self.units * self.unit.mib

    @property
    def largest_gpu_mib(self) -> int:
        """MiB that the GPU has at most, as programs see it."""
        by_units = (self.gpu + 1) * self.unit.mib
        if not self.parts:
            return by_units
        return max(by_units, -(-self.mib * 10_000 * (self.gpu + 1) // (self.parts * self.gpu)))


class NoFraction(msgspec.Struct, frozen=True):
    """There is no fraction to give; ``reason`` is a sentence for the container's log."""

    reason: str


def share_in(env: Mapping[str, str], names: Names = DEFAULT_NAMES) -> Share | NoFraction:
    """The share in a container's environment.

    Args:
        env: of the container, as this project's plugin or an original one fills it. An original
            plugin does not publish its unit; GiB, its default, is assumed then.
        names: of the variables.
    """
    numbers: dict[str, int] = {}
    for name in (names.mem_container, names.mem_dev):
        text = env.get(name, "")
        if not _NUMBER.fullmatch(text):
            return NoFraction(
                f"{name} is '{text}': no device plugin has allocated a share of a GPU"
            )
        numbers[name] = int(text)
    indexes = env.get(names.mem_idx, "0")
    if not _INDEXES.fullmatch(indexes):
        return NoFraction(f"{names.mem_idx} is '{indexes}': the device plugin allocated no GPU")
    gpus = indexes.count(",") + 1
    return _shared(numbers[names.mem_container], numbers[names.mem_dev], gpus, env)


def _shared(container: int, gpu: int, gpus: int, env: Mapping[str, str]) -> Share | NoFraction:
    units = container // gpus
    if not 1 <= units <= gpu:
        return NoFraction(f"{container} units cannot be on {gpus} GPUs of {gpu} units each")
    limit = env.get(wire_names.ENV_MEM_LIMIT_MIB, "")
    if limit and not _NUMBER.fullmatch(limit):
        return NoFraction(f"{wire_names.ENV_MEM_LIMIT_MIB} is '{limit}': not an amount in MiB")
    mib = int(limit) // units if limit else GIB.mib
    if mib < 1:
        return NoFraction(f"{wire_names.ENV_MEM_LIMIT_MIB} is '{limit}': less than 1 MiB a unit")
    plugins = env.get(wire_names.ENV_MEM_FRACTION, "")
    parts = int(plugins.replace(".", "")) if _FRACTION.fullmatch(plugins) else 0
    return Share(units, gpu, MemoryUnit(mib), parts)


def fraction(
    share: Share, *, context_mib: int = CONTEXT_MIB, processes: int = 1
) -> str | NoFraction:
    """The fraction of the GPU for each of a container's processes, six places, rounded down.

    Args:
        share: of the container.
        context_mib: head-room in MiB that each process keeps for its CUDA context.
        processes: of the container that use the GPU, each with an equal part of the share.
    """
    room = share.mib // processes - context_mib
    if room < 1:
        return NoFraction(
            f"a share of {share.mib} MiB is too small for a model: each of {processes} processes "
            f"needs {context_mib} MiB for its CUDA context"
        )
    return _text(room * _WHOLE // share.largest_gpu_mib)


def quotient(share: Share) -> str:
    """Arena's figure, ``%.2f`` of units over units of the GPU; more places where that is 0.00."""
    text = f"{share.units / share.gpu:.2f}"
    return _text(share.units * _WHOLE // share.gpu) if text == "0.00" else text


def _text(parts: int) -> str:
    """Millionths as a decimal; at least one, since frameworks read 0 as "no limit"."""
    whole, rest = divmod(max(parts, 1), _WHOLE)
    return f"{whole}.{rest:0{_PLACES}d}"
