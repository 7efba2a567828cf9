"""The library, built once, and workers that have loaded it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mocknvml import build
from mocknvml.tests.nvml_process import NvmlProcess, NvmlStarter

Start = Callable[..., NvmlProcess]


@pytest.fixture(scope="session")
def library() -> Path:
    """The directory with the library built from the sources as they are."""
    return build.ensure()


@pytest.fixture(scope="session")
def starter(library: Path) -> Iterator[NvmlStarter]:
    """What starts workers with that library."""
    with NvmlStarter(library) as started:
        yield started


@pytest.fixture
def start(starter: NvmlStarter, tmp_path: Path) -> Iterator[Start]:
    """Start a worker, not initialized yet, on a shipped machine (by name) or the text of one."""
    with ExitStack() as workers:

        def begin(
            name: str = "", *, text: str = "", state: str = "", **variables: str
        ) -> NvmlProcess:
            machine = build.machine(name)
            if text:
                machine = tmp_path / "described.machine"
                machine.write_text(text)
            worker_state = tmp_path / "state"
            worker_state.write_text(state)
            worker = NvmlProcess(starter, machine=machine, state=worker_state, **variables)
            workers.callback(worker.close)
            return worker

        yield begin


@pytest.fixture
def nvml(start: Start) -> Start:
    """Start a worker and initialize the library in it."""

    def begin(name: str = "", *, text: str = "", state: str = "", **variables: str) -> NvmlProcess:
        worker = start(name, text=text, state=state, **variables)
        worker.call("nvmlInit")
        return worker

    return begin
