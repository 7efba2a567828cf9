"""What preparing a claim may cost: time over the socket, without the API server's."""

import statistics
import time
from pathlib import Path

import pytest
from fakedra.claims import FakeClaims, holding, node
from fakedra.kubelet import DraKubelet, single_calls

from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.endpoint import DraEndpoint
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpudeviceplugin.signals import Signal

pytestmark = pytest.mark.slow

CLAIMS = 400
SECONDS = 0.005


async def test_preparing_a_claim_takes_less_than_five_milliseconds(tmp_path: Path) -> None:
    """The 99th percentile of the time of the processor, kubelet's side included.

    The time on the clock depends on the disk and on other work of the machine; it is printed.
    """
    claims = FakeClaims()
    files = ClaimFiles(tmp_path / "gpu", tmp_path / "cdi")
    driver = DraEndpoint(
        registry=tmp_path / "registry",
        home=tmp_path / "gpu",
        preparer=ClaimPreparer(claims, files, node, holder=holding()),
        node=node,
        changed=Signal(),
    )
    await driver.start()
    kubelet = DraKubelet(tmp_path / "registry")
    await kubelet.register()
    wall, processor = [], []
    async with single_calls(kubelet) as prepare:
        for number in range(CLAIMS):
            uid = f"u-{number}"
            claims.add(uid, number % 2)
            start = time.perf_counter(), time.process_time()
            assert (await prepare(uid)).error == ""
            wall.append(time.perf_counter() - start[0])
            processor.append(time.process_time() - start[1])
    await driver.stop()
    for name, times in (("clock", wall), ("processor", processor)):
        print(f"{name}: median {statistics.median(times) * 1e3:.2f} ms, p99 {p99(times) * 1e3:.2f}")
    assert p99(processor) < SECONDS


def p99(times: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(times, n=100)[98]
