"""How much work shares get done: alone, with fewer threads, and several side by side.

A request is a chain of small kernels, each too small to fill a GPU, as those of a model server
at small batch sizes are: that is where sharing pays. Its size is settled once, on one client
alone, so that figures of different modes and numbers of clients compare. Kernels and rates are
those of :mod:`gpuprobe.checks.compute`, as in ``gpushare verify``.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from gpuprobe.checks import compute as checks
from hardware.clients import Client, reply, together
from hardware.grants import PublishedGpu, ShareSize
from hardware.site import Site

CORE_PER_GPU: Final = 100
KERNELS_A_REQUEST: Final = 20
KERNEL_MS: Final = 0.1
ROOM_MIB: Final = 2048
"""Memory that a client of these measurements needs at most, its context included."""


class Effort(NamedTuple):
    """How long each figure is measured, in seconds, and how often."""

    seconds: float = 3.0
    runs: int = 3


class ComputeRequest(NamedTuple):
    """A request of fixed size: blocks of a kernel, and rounds of arithmetic in each."""

    blocks: int
    rounds: int


def request(client: Client) -> ComputeRequest:
    """Settle the size of a request; the client must be alone on its GPU and unlimited."""
    blocks = max(int(client.gpu["multiprocessors"]) // checks.SMALL_PART, 1)
    answer = client.ask("calibrate", blocks=blocks, milliseconds=KERNEL_MS)
    return ComputeRequest(blocks, int(answer["rounds"]))


def settle(site: Site, gpu: PublishedGpu) -> ComputeRequest:
    """As :func:`request`, by a client of its own."""
    with site.client(whole(site), gpu=gpu.index) as client:
        return request(client)


def whole(site: Site, core: int = CORE_PER_GPU) -> ShareSize:
    """A share with room for these measurements and so much of the GPU's compute."""
    return ShareSize(units=-(-ROOM_MIB // site.unit_mib), core=core)


def alone(site: Site, gpu: PublishedGpu, size: ComputeRequest, effort: Effort) -> dict[str, Any]:
    """One client and nobody else: TFLOP/s, GB/s and requests/s, each a list of runs."""
    with site.client(whole(site), gpu=gpu.index) as client:
        figures = _full(client, effort)
        served = [_requests([client], size, effort.seconds) for _ in range(effort.runs)]
        return figures | {"requests_per_s": [each["requests_per_s"] for each in served]}


def threads(
    site: Site, gpu: PublishedGpu, percents: Sequence[int], effort: Effort
) -> dict[str, Any]:
    """A client alone with each share of compute: TFLOP/s and GB/s, by percent."""
    found: dict[str, Any] = {}
    for percent in percents:
        with site.client(whole(site, percent), gpu=gpu.index) as client:
            found[str(percent)] = _full(client, effort)
    return found


def crowds(
    site: Site, gpu: PublishedGpu, size: ComputeRequest, counts: Sequence[int], effort: Effort
) -> dict[str, Any]:
    """So many clients at once, each with an equal share of compute: rates and latencies."""
    return {str(count): _crowd(site, gpu, size, count, effort) for count in counts}


def _crowd(
    site: Site, gpu: PublishedGpu, size: ComputeRequest, count: int, effort: Effort
) -> dict[str, Any]:
    share = ShareSize(max(gpu.units // (max(count, 1) + 1), 1), core=CORE_PER_GPU // count)
    with ExitStack() as stack:
        clients = [stack.enter_context(site.client(share, gpu=gpu.index)) for _ in range(count)]
        runs = [_requests(clients, size, effort.seconds) for _ in range(effort.runs)]
        return {key: [run[key] for run in runs] for key in runs[0]}


def _requests(clients: Sequence[Client], size: ComputeRequest, seconds: float) -> dict[str, float]:
    answers = together(
        clients,
        "compute",
        blocks=size.blocks,
        rounds=size.rounds,
        launches=KERNELS_A_REQUEST,
        seconds=seconds,
    )
    return checks.requests(answers)


def _full(client: Client, effort: Effort) -> dict[str, list[float]]:
    """Kernels that would fill the exclusive GPU: arithmetic, then copying."""
    processors = int(client.gpu["multiprocessors"])
    (calibrated,) = client.run([checks.calibrating(processors)])
    rounds = int(reply(calibrated)["rounds"])
    tflops, gigabytes = [], []
    for _ in range(effort.runs):
        burnt, moved = client.run(
            [checks.burning(processors, rounds, effort.seconds), checks.copying(effort.seconds)]
        )
        tflops.append(checks.tflops(reply(burnt)))
        gigabytes.append(checks.gigabytes(reply(moved)))
    return {"tflops": tflops, "gb_per_s": gigabytes}
