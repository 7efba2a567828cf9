"""What the CUDA program does on a command: take memory, work for a while, or crash.

Timing is by the host's monotonic clock around launches that were waited for: what a user of the
gpu sees, waiting for other users included.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_uint32, c_uint64
from functools import partial
from typing import Any, Final

from gpuprobe import kernels, nvml
from gpuprobe.driver import CudaDevice, CudaError
from gpuprobe.names import OUT_OF_MEMORY

MIB: Final = 1024 * 1024
SMALLEST_STEP_MIB: Final = 2  # the driver maps device memory in pages of this size
_PATTERN: Final = 0x5A5A5A5A
_SAMPLE_BYTES: Final = 4096
_UNMAPPED: Final = 0x10  # aligned for the kernel, and never an address of an allocation
_FIRST_ROUNDS: Final = 256

Answer = dict[str, Any]


@contextmanager
def _memory(gpu: CudaDevice, mib: int) -> Iterator[int]:
    """The address of so many MiB, which are given back at the end."""
    gpu.activate()
    address = gpu.alloc_memory(mib * MIB)
    try:
        yield address
    finally:
        gpu.activate()
        gpu.free(address)


class CudaWorker:
    """One CUDA process on one gpu; every public method is a command of the protocol."""

    def __init__(self, gpu: CudaDevice) -> None:
        self._gpu = gpu
        self._held: list[tuple[int, int]] = []
        self._kernels: dict[str, Any] = {}

    def describe(self) -> Answer:
        """The GPU, and the memory that the driver reports to this process, in bytes."""
        free, total = self._gpu.memory()
        return self._gpu.describe() | {"free_bytes": free, "reported_total_bytes": total}

    def fill(self, mib: int) -> Answer:
        """Take so many MiB more and write a pattern to all of them; what cannot be written goes.

        Writing may be what runs out of memory: the driver loads its kernels when they are used.
        """
        address = self._gpu.alloc_memory(mib * MIB)
        try:
            self._gpu.fill(address, _PATTERN, mib * MIB // 4)
            self._gpu.finish()
        except CudaError as error:
            if error.name == OUT_OF_MEMORY:
                self._gpu.free(address)
            raise
        self._held.append((address, mib))
        return self._holding()

    def exhaust(self, step_mib: int, most_mib: int, spare_mib: int = 0) -> Answer:
        """Take memory until it is refused or ``most_mib`` are held, in steps that get smaller.

        Args:
            spare_mib: what it leaves free for others, by what the driver reports; 0 to go on until
                it is refused.

        Returns:
            ``held_mib``, and ``refusal``: the name of the last error, empty if none came. After one
            also ``gpu_free_mib``, the free memory of the whole GPU, where NVML reports it.

        Raises:
            CudaError: another refusal than out of memory.
        """
        refusal = ""
        while step_mib >= SMALLEST_STEP_MIB and self._held_mib() + step_mib <= most_mib:
            if spare_mib and self._free_mib() < step_mib + spare_mib:
                step_mib //= 2
                continue
            try:
                self.fill(step_mib)
            except CudaError as error:
                if error.name != OUT_OF_MEMORY:
                    raise
                refusal = error.name
                step_mib //= 2
        free = nvml.free_mib(self._gpu.uuid()) if refusal else None
        known = {} if free is None else {"gpu_free_mib": free}
        return self._holding() | {"refusal": refusal} | known

    def verify(self) -> Answer:
        """Whether the pattern is still at both ends of every piece that is held."""
        wanted = _PATTERN.to_bytes(4, "little") * (_SAMPLE_BYTES // 4)
        for address, mib in self._held:
            for at in (address, address + mib * MIB - _SAMPLE_BYTES):
                if self._gpu.read(at, _SAMPLE_BYTES) != wanted:
                    return {"intact": False}
        return {"intact": True}

    def release(self) -> Answer:
        """Give all memory back."""
        while self._held:
            self._gpu.free(self._held.pop()[0])
        return self._holding()

    def calibrate(self, blocks: int, milliseconds: float) -> Answer:
        """How many ``rounds`` of arithmetic in so many blocks take about so long, here and now.

        Beside others that work the answer is too small: the time has their turns in it. The size
        grows up to more than half of the time, because a GPU that was idle is slow at first.
        """
        rounds = _FIRST_ROUNDS
        self._timed(partial(self._burn, blocks, rounds))  # compiles the kernel
        took = self._quickest(partial(self._burn, blocks, rounds))
        while took < milliseconds / 2e3:
            rounds *= 2
            took = self._quickest(partial(self._burn, blocks, rounds))
        return {"rounds": max(int(rounds * milliseconds / 1e3 / took), 1)}

    def compute(
        self, blocks: int, rounds: int, launches: int, seconds: float, *, warm: bool = False
    ) -> Answer:
        """Answer requests of ``launches`` kernels, one after the other, for a while.

        Args:
            warm: the GPU works already, so that the first request counts too.

        Returns:
            ``requests``, ``seconds``, ``operations`` and ``milliseconds``: how long each took.
        """

        def request() -> None:
            for _ in range(launches):
                self._burn(blocks, rounds)

        times = self._repeat(request, seconds, warm=warm)
        each = launches * kernels.operations(blocks=blocks, rounds=rounds)
        return _figures(times) | {"operations": each * len(times)}

    def copy(self, mib: int, seconds: float) -> Answer:
        """Copy so many MiB within the gpu, again and again; returns ``bytes`` moved as well."""
        vectors = mib * MIB // 16
        blocks = 8 * int(self._gpu.describe()["multiprocessors"])
        with _memory(self._gpu, mib) as source, _memory(self._gpu, mib) as target:
            times = self._repeat(lambda: self._copy(blocks, source, target, vectors), seconds)
        return _figures(times) | {"bytes": kernels.bytes_moved(vectors) * len(times)}

    def peers(self, mib: int, seconds: float) -> Answer:
        """Copy to a second GPU again and again; ``bytes``, and whether that is direct."""
        other = self._gpu.beside(1)
        try:
            with _memory(other, mib) as target:
                direct = self._gpu.reaches(other)
                with _memory(self._gpu, mib) as source:
                    send = partial(self._gpu.send, source, other, target, mib * MIB)
                    times = self._repeat(send, seconds)
        finally:
            self._gpu.activate()
        return _figures(times) | {"bytes": mib * MIB * len(times), "direct": direct}

    def crash(self) -> Answer:
        """Touch memory that is nobody's: the gpu stops this process's work with an error."""
        self._copy(1, _UNMAPPED, _UNMAPPED, kernels.THREADS)
        self._gpu.finish()
        return {}

    def _free_mib(self) -> int:
        return self._gpu.memory()[0] // MIB

    def _held_mib(self) -> int:
        return sum(mib for _, mib in self._held)

    def _holding(self) -> Answer:
        return {"held_mib": self._held_mib()}

    def _burn(self, blocks: int, rounds: int) -> None:
        """``out`` is small and taken once for each size of grid."""
        name = f"out{blocks}"
        if name not in self._kernels:
            self._kernels[name] = self._gpu.alloc_memory(4 * blocks * kernels.THREADS)
        out = c_uint64(self._kernels[name])
        kernel = self._kernel("burn", kernels.burn)
        self._gpu.launch(kernel, blocks, kernels.THREADS, out, c_uint32(rounds))

    def _copy(self, blocks: int, source: int, target: int, vectors: int) -> None:
        addresses = (c_uint64(source), c_uint64(target), c_uint64(vectors))
        self._gpu.launch(self._kernel("copy", kernels.copy), blocks, kernels.THREADS, *addresses)

    def _kernel(self, name: str, source: Callable[[], str]) -> Any:
        if name not in self._kernels:
            self._kernels[name] = self._gpu.kernel(source(), name)
        return self._kernels[name]

    def _timed(self, work: Callable[[], None]) -> float:
        begin = time.monotonic()
        work()
        self._gpu.finish()
        return time.monotonic() - begin

    def _quickest(self, work: Callable[[], None]) -> float:
        """Of three: a host that is busy makes one or two late, and a size would be wrong by far."""
        return min(self._timed(work) for _ in range(3))

    def _repeat(
        self, work: Callable[[], None], seconds: float, *, warm: bool = False
    ) -> list[float]:
        """Once to warm up, unless it is warm, then until the time is over; seconds of each."""
        if not warm:
            self._timed(work)
        end = time.monotonic() + seconds
        times = [self._timed(work)]
        while time.monotonic() < end:
            times.append(self._timed(work))
        return times


def _figures(times: list[float]) -> Answer:
    return {
        "requests": len(times),
        "seconds": sum(times),
        "milliseconds": [round(each * 1e3, 4) for each in times],
    }
