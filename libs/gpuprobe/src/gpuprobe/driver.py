"""The CUDA driver API through ctypes: the few calls that the checks need.

Names and argument types follow ``cuda.h``; where the header maps a name to a versioned symbol
(``cuMemAlloc`` to ``cuMemAlloc_v2``), the symbol stands here. Everything is bound to one primary
context of one gpu. It promises no asynchrony beyond that of a launch.

    CudaError
    └── LibraryError    there is no driver to speak to
"""

import ctypes
import itertools
from contextlib import suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

from gpuprobe.names import LIBRARY

_MULTIPROCESSORS: Final = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_COMPUTE_MODE: Final = 20  # CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
_MAJOR: Final = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_MINOR: Final = 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR

_ADDRESS: Final = c_uint64  # CUdeviceptr on 64-bit hosts
SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (c_void_p,),
    "cuDeviceGetCount": (c_void_p,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid": (c_void_p, c_int),
    "cuDeviceTotalMem_v2": (c_void_p, c_int),
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (c_void_p, c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemGetInfo_v2": (c_void_p, c_void_p),
    "cuMemsetD32_v2": (_ADDRESS, c_uint, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, _ADDRESS, c_size_t),
    "cuMemcpyPeer": (_ADDRESS, c_void_p, _ADDRESS, c_void_p, c_size_t),
    "cuDeviceCanAccessPeer": (c_void_p, c_int, c_int),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuModuleLoadData": (c_void_p, c_void_p),
    "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 6, c_uint, c_void_p, c_void_p, c_void_p),
}


class CudaError(Exception):
    """A call that the driver refused.

    Attributes:
        code: the number of ``CUresult``.
        name: the word for it, such as ``CUDA_ERROR_OUT_OF_MEMORY``.
    """

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call = call
        self.code = code
        self.name = name


class LibraryError(CudaError):
    """The library is not there, or lacks a symbol."""

    def __init__(self, why: str) -> None:
        super().__init__(LIBRARY, -1, why)


def load(path: str = LIBRARY) -> ctypes.CDLL:
    """The library with all signatures set.

    Raises:
        LibraryError: not installed, or older than the calls above.
    """
    try:
        library = ctypes.CDLL(path)
        library.cuGetErrorName.argtypes = (c_int, c_void_p)
        for name, arguments in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
    except (OSError, AttributeError) as error:
        raise LibraryError(str(error)) from error
    return library


class CudaDevice:
    """The primary context on one gpu; it lives as long as the process, like that of most programs.

    Args:
        library: from :func:`load`.
        ordinal: as this process counts the gpus that it sees.
    """

    def __init__(self, library: ctypes.CDLL, ordinal: int = 0) -> None:
        self._library = library
        self._call("cuInit", 0)
        self.handle = c_int()
        self._call("cuDeviceGet", byref(self.handle), ordinal)
        self.context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(self.context), self.handle)
        self.activate()
        self._modules: list[c_void_p] = []

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            word = c_char_p()
            self._library.cuGetErrorName(code, byref(word))
            raise CudaError(name, code, (word.value or b"CUDA_ERROR_UNKNOWN").decode())

    def activate(self) -> None:
        """Make its context that of this thread, where the process has several GPUs."""
        self._call("cuCtxSetCurrent", self.context)

    def _attribute(self, number: int) -> int:
        value = c_int()
        self._call("cuDeviceGetAttribute", byref(value), number, self.handle)
        return value.value

    def describe(self) -> dict[str, Any]:
        """What the driver reports of the gpu: names, versions, sizes in bytes."""
        version, count, total = c_int(), c_int(), c_size_t()
        name = ctypes.create_string_buffer(256)
        self._call("cuDriverGetVersion", byref(version))
        self._call("cuDeviceGetCount", byref(count))
        self._call("cuDeviceGetName", name, len(name), self.handle)
        self._call("cuDeviceTotalMem_v2", byref(total), self.handle)
        return {
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "gpus_seen": count.value,
            "model": name.value.decode(),
            "uuid": self.uuid(),
            "total_bytes": total.value,
            "multiprocessors": self._attribute(_MULTIPROCESSORS),
            "capability": f"{self._attribute(_MAJOR)}.{self._attribute(_MINOR)}",
            "compute_mode": self._attribute(_COMPUTE_MODE),
        }

    def uuid(self) -> str:
        """Of the gpu, spelled as NVML does."""
        raw = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid", byref(raw), self.handle)
        return spelled(bytes(raw))

    def memory(self) -> tuple[int, int]:
        """Free and total bytes, as reported to this context."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def alloc_memory(self, size: int) -> int:
        """Address of so many bytes of the gpu's memory."""
        address = _ADDRESS()
        self._call("cuMemAlloc_v2", byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        """Give back what :meth:`alloc_memory` gave."""
        self._call("cuMemFree_v2", address)

    def fill(self, address: int, word: int, count: int) -> None:
        """Write one 32-bit word ``count`` times."""
        self._call("cuMemsetD32_v2", address, word, count)

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes of the gpu's memory to the host."""
        buffer = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", buffer, address, size)
        return buffer.raw

    def beside(self, ordinal: int) -> "CudaDevice":
        """Another GPU of this process, whose context becomes the current one."""
        return CudaDevice(self._library, ordinal)

    def reaches(self, other: "CudaDevice") -> bool:
        """Whether it may access the memory of another GPU of this process; enables that."""
        found = c_int()
        self._call("cuDeviceCanAccessPeer", byref(found), self.handle, other.handle)
        if found.value:
            self.activate()
            with suppress(CudaError):  # enabled already
                self._call("cuCtxEnablePeerAccess", other.context, 0)
        return bool(found.value)

    def send(self, source: int, other: "CudaDevice", target: int, size: int) -> None:
        """Copy bytes to the memory of another GPU of this process."""
        self._call("cuMemcpyPeer", target, other.context, source, self.context, size)

    def kernel(self, ptx: str, name: str) -> c_void_p:
        """Compile PTX for this gpu and find a kernel in it."""
        module, function = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(module), ptx.encode())
        self._modules.append(module)
        self._call("cuModuleGetFunction", byref(function), module, name.encode())
        return function

    def launch(self, kernel: c_void_p, blocks: int, threads: int, *values: Any) -> None:
        """Start a grid of one dimension on the default stream; ``values`` are ctypes scalars."""
        cells = [ctypes.addressof(value) for value in values]
        parameters = (c_void_p * len(cells))(*cells)
        self._call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, None, parameters, None)

    def finish(self) -> None:
        """Wait for all that was launched; an error of a kernel comes up here."""
        self._call("cuCtxSynchronize")


def spelled(uuid: bytes) -> str:
    """16 bytes as ``GPU-`` and five groups of hexadecimal digits."""
    digits = uuid.hex()
    cuts = (0, 8, 12, 16, 20, 32)
    groups = [digits[a:b] for a, b in itertools.pairwise(cuts)]
    return "GPU-" + "-".join(groups)
