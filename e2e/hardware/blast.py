"""What a client that crashes takes with it: its neighbour, the GPU, those who come after.

NVIDIA documents that with MPS a fatal fault of one client reaches every client of that GPU, and
that no client is let in until those have gone; without MPS a fault is that of one process. Here
it is seen, not assumed.
"""

from collections.abc import Callable
from typing import Any, Final

from gpuprobe.checks.answers import outcome
from gpuprobe.names import ENDED
from hardware.clients import Client, CudaRefusedError, LostError
from hardware.compute import KERNELS_A_REQUEST, ComputeRequest, whole
from hardware.grants import PublishedGpu
from hardware.site import Site
from host.waiting import until

WORK_SECONDS: Final = 3.0
RECOVERY_SECONDS: Final = 60.0
FINE: Final = "fine"

Crash = Callable[[Client], str]


def fault(client: Client) -> str:
    """Touch memory that is nobody's; the name of the error that comes back."""
    (answer,) = client.run([{"do": "crash"}])
    return outcome(answer)


def killed(client: Client) -> str:
    """End without a word in the middle of work, as the kernel's killer does it."""
    client.begin("compute", blocks=1, rounds=1, launches=1, seconds=WORK_SECONDS)
    client.kill()
    return ENDED


def radius(
    site: Site,
    gpu: PublishedGpu,
    size: ComputeRequest,
    crash: Crash,
    *,
    work_seconds: float = WORK_SECONDS,
) -> dict[str, Any]:
    """Let one client crash beside another that works.

    Returns:
        names of errors or ``fine``: of ``offender``, ``neighbour`` (the work it was at),
        ``neighbour_afterwards``, ``newcomer`` (who comes while the neighbour is there),
        ``after_all_left``; and ``gpu_healthy``, what was reported to kubelet at the end.
    """
    share = whole(site, core=30)
    with site.client(share, gpu=gpu.index) as neighbour:
        with site.client(share, gpu=gpu.index) as offender:
            neighbour.begin(
                "compute",
                blocks=size.blocks,
                rounds=size.rounds,
                launches=KERNELS_A_REQUEST,
                seconds=work_seconds,
            )
            found = {"offender": crash(offender)}
        found["neighbour"] = _outcome(neighbour.finish)
        found["neighbour_afterwards"] = _outcome(lambda: neighbour.ask("fill", mib=2))
        found["newcomer"] = _newcomer(site, gpu)
    return found | {
        "after_all_left": let_in(site, gpu),
        "gpu_healthy": all(each.healthy for each in site.gpus() if each.uuid == gpu.uuid),
    }


def _newcomer(site: Site, gpu: PublishedGpu) -> str:
    def come() -> None:
        with site.client(whole(site, core=30), gpu=gpu.index) as client:
            client.ask("fill", mib=2)

    return _outcome(come)


def let_in(site: Site, gpu: PublishedGpu) -> str:
    """Wait until a new client can work; ``fine``.

    A server of MPS that starts or recovers turns clients away with CUDA_ERROR_MPS_SERVER_NOT_READY
    for a while (MPS manual, troubleshooting), so the first client of a node comes here too.
    """
    until("a client is let in", lambda: _newcomer(site, gpu) == FINE, seconds=RECOVERY_SECONDS)
    return FINE


def _outcome(work: Callable[[], object]) -> str:
    try:
        work()
    except CudaRefusedError as error:
        return error.name
    except LostError:
        return ENDED
    return FINE
