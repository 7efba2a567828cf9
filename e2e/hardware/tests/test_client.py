"""The CUDA program over a fake driver library: the real ctypes calls, the real protocol."""

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

from gpuprobe import kernels
from hardware.clients import Client, CudaRefusedError, LostError, together

pytestmark = pytest.mark.slow

UUID = "GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f"


class StartClient(Protocol):
    """Starts a program with some variables more."""

    def __call__(self, **more: str) -> AbstractContextManager[Client]: ...


@pytest.fixture
def start(fake_cuda: Path) -> StartClient:
    """A program on the fake GPU."""

    @contextmanager
    def started(**more: str) -> Iterator[Client]:
        base = {"LD_LIBRARY_PATH": str(fake_cuda), "CUDA_VISIBLE_DEVICES": UUID}
        with Client.local(base | more) as client:
            yield client

    return started


def test_it_names_the_gpu_it_has(start: StartClient) -> None:
    """The first line names the GPU as NVML does, and the versions of what drives it."""
    with start() as client:
        assert client.gpu["uuid"] == UUID
        assert client.gpu["model"] == "Fake GPU"
        assert client.gpu["cuda"] == "12.4"
        assert client.gpu["multiprocessors"] == 16


def test_memory_is_taken_up_to_the_limit(start: StartClient) -> None:
    """It takes all that its limit leaves, to the size of a page, and states what refused more."""
    limits = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=301M", "FAKECUDA_CONTEXT_MIB": "8"}
    with start(**limits) as client:
        assert client.ask("exhaust", step_mib=128, most_mib=1024) == {
            "held_mib": 292,
            "refusal": "CUDA_ERROR_OUT_OF_MEMORY",
        }
        assert client.ask("verify") == {"intact": True}
        assert client.ask("release") == {"held_mib": 0}


def test_memory_is_not_taken_beyond_what_was_requested(start: StartClient) -> None:
    """Where nothing refuses, it stops at the most it was instructed to hold."""
    with start() as client:
        found = client.ask("exhaust", step_mib=64, most_mib=256)
        assert found == {"held_mib": 256, "refusal": ""}


def test_a_refusal_does_not_end_it(start: StartClient) -> None:
    """An allocation that CUDA refuses is reported by name, and the program goes on."""
    with start() as client:
        with pytest.raises(CudaRefusedError) as refused:
            client.ask("fill", mib=4096)
        assert refused.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
        assert client.ask("fill", mib=16) == {"held_mib": 16}


def test_work_is_counted(start: StartClient) -> None:
    """Operations are those of the launches it made, over the time that it measured."""
    with start() as client:
        rounds = client.ask("calibrate", blocks=4, milliseconds=1.0)["rounds"]
        found = client.ask("compute", blocks=4, rounds=rounds, launches=2, seconds=0.5)
        each = 2 * kernels.operations(blocks=4, rounds=rounds)
        assert found["operations"] == found["requests"] * each
        assert len(found["milliseconds"]) == found["requests"] > 1
        assert client.ask("copy", mib=8, seconds=0.02)["bytes"] >= 2 * 8 * 1024 * 1024


def test_a_crash_is_reported_and_lasts(start: StartClient) -> None:
    """After an illegal access every call fails, as a context on a GPU is spoiled for good."""
    with start() as client:
        for _ in range(2):
            with pytest.raises(CudaRefusedError) as refused:
                client.ask("crash")
            assert refused.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"


def test_a_missing_gpu_is_reported_by_name(start: StartClient) -> None:
    """A program that cannot open its GPU states why before it ends."""
    with (
        pytest.raises(CudaRefusedError, match="CUDA_ERROR_NO_DEVICE"),
        start(FAKECUDA_NONE="1"),
    ):
        pytest.fail("it has no GPU")


def test_a_missing_driver_is_reported(tmp_path: Path) -> None:
    """Without the driver's library the answer is a refusal that names the library."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    with pytest.raises(CudaRefusedError, match="libcuda"), Client.local({"HOME": str(tmp_path)}):
        pytest.fail("there is no driver")


def test_one_that_is_killed_is_noticed(start: StartClient) -> None:
    """A program that ends in the middle of a command is an error at once, not a wait."""
    with start() as client:
        client.begin("compute", blocks=4, rounds=1, launches=1, seconds=30)
        client.kill()
        with pytest.raises(LostError):
            client.finish(within=60)


def test_several_work_at_the_same_time(start: StartClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """All programs have the command before the result of the first is awaited."""
    begun: list[Client] = []
    begun_at_finish: list[int] = []
    begin, finish = Client.begin, Client.finish

    def recorded_begin(client: Client, do: str, **arguments: Any) -> None:
        begun.append(client)
        begin(client, do, **arguments)

    def recorded_finish(client: Client, **options: Any) -> Any:
        begun_at_finish.append(len(begun))
        return finish(client, **options)

    with start() as first, start() as second:
        monkeypatch.setattr(Client, "begin", recorded_begin)
        monkeypatch.setattr(Client, "finish", recorded_finish)
        work = {"blocks": 4, "rounds": 64, "launches": 1, "seconds": 0.2}
        found = together([first, second], "compute", **work)
        assert begun_at_finish == [2, 2]
        assert all(each["requests"] >= 1 for each in found)
