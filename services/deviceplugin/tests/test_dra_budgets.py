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

pytestmark = [pytest.mark.slow, pytest.mark.budget]

CLAIMS = 400
ROUNDS = 3
SECONDS = 0.005


async def test_preparing_a_claim_takes_less_than_five_milliseconds(tmp_path: Path) -> None:
    """The 99th percentile of the time of the processor, kubelet's side included.

    Each claim counts at the best of its rounds: what else runs here only adds to a call. The time
    on the clock depends on the disk as well; it is printed.
    """
    rounds = [await prepare_all(tmp_path / f"round-{number}") for number in range(ROUNDS)]
    best = {
        name: [min(calls) for calls in zip(*(times[name] for times in rounds), strict=True)]
        for name in rounds[0]
    }
    for name, times in best.items():
        print(f"{name}: median {statistics.median(times) * 1e3:.2f} ms, p99 {p99(times) * 1e3:.2f}")
    assert len(best["processor"]) == CLAIMS
    assert p99(best["processor"]) < SECONDS


async def prepare_all(directory: Path) -> dict[str, list[float]]:
    """Seconds of each call on the clock and of the processor, with a driver that starts empty."""
    claims = FakeClaims()
    files = ClaimFiles(directory / "gpu", directory / "cdi")
    driver = DraEndpoint(
        registry=directory / "registry",
        home=directory / "gpu",
        preparer=ClaimPreparer(claims, files, node, holder=holding()),
        node=node,
        changed=Signal(),
    )
    await driver.start()
    kubelet = DraKubelet(directory / "registry")
    await kubelet.register()
    clock, processor = [], []
    async with single_calls(kubelet) as prepare:
        for number in range(CLAIMS):
            uid = f"u-{number}"
            claims.add(uid, number % 2)
            start = time.perf_counter(), time.process_time()
            assert (await prepare(uid)).error == ""
            clock.append(time.perf_counter() - start[0])
            processor.append(time.process_time() - start[1])
    await driver.stop()
    return {"clock": clock, "processor": processor}


def p99(times: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(times, n=100)[98]
