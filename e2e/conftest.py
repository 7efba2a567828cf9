"""The environment the cases run in, and what is printed when one of them fails."""

import os
import secrets
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from environments import diagnosis, machines
from environments.case import Case
from environments.endedpods import EndedPods
from environments.environment import Environment, UnavailableError
from environments.given import GivenEnvironment, is_given
from host.errors import SetupError
from host.solerun import sole_run
from host.stopping import heed_interrupts
from host.testing.lacking import lacking

CASES_RUN = "cases"
MACHINE = "GPUSHARE_MACHINE"
"""Selects a machine in QEMU for the cases that any cluster can run: 1, or the name of the mock
machine whose GPUs it has, such as dgx1-volta."""
CASE_SECONDS = 1200
"""Of one case: several waits of :data:`environments.waiting.PATIENCE_SECONDS` after one another."""


def pytest_configure() -> None:
    """A run in the background of a script can be interrupted, as can what the tests start."""
    heed_interrupts()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time the cases, not the cluster that the first of them finds or makes.

    Every step of an environment's start has a deadline of its own. Scheduling cases are those of
    the suite for real GPUs too.
    """
    for item in items:
        if item.get_closest_marker("scheduling"):
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("e2e"):
            own = item.get_closest_marker("timeout")
            seconds = own.args[0] if own and own.args else CASE_SECONDS
            item.add_marker(pytest.mark.timeout(seconds, func_only=True))


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Iterator[Environment]:
    """A cluster with the stack on it; with CI=true none is a failure, else a reasoned skip.

    With GPU_KUBECONFIG, and for ``pytest -m gpu``, it is the cluster that is given. With
    GPUSHARE_MACHINE it is a machine in QEMU.
    """
    if is_given(request.config.getoption("markexpr"), os.environ):
        try:
            yield GivenEnvironment(os.environ)
        except UnavailableError as reason:
            pytest.skip(str(reason))
        return
    if mock := os.environ.get(MACHINE):
        from machine import environment as qemu  # noqa: PLC0415 - as below
        from machine.running import running  # noqa: PLC0415 - as below

        mock = qemu.MACHINE if mock == "1" else mock
        yield from running(request, qemu.MachineEnvironment(mock=mock))
        return
    from environments.kind import KindEnvironment  # noqa: PLC0415 - unit tests here need no kind

    request.getfixturevalue("alone")
    keep = bool(request.config.getoption("keep_cluster"))
    world = KindEnvironment(name=request.config.getoption("cluster_name"), reuse=keep)
    try:
        world.start()
    except UnavailableError as reason:
        lacking("no cluster for the e2e cases", reason)
    except BaseException:  # an interrupt, too
        if not keep:
            world.stop()
        raise
    pods = EndedPods(world.kubectl)
    pods.start()
    try:
        yield world
    finally:
        pods.stop()
        if not keep:
            world.stop()


@pytest.fixture(scope="session")
def alone(pytestconfig: pytest.Config) -> Iterator[None]:
    """The only run of the cases on this machine: another one, of any checkout, is waited for."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with ExitStack() as held:
        with capture.global_and_fixture_disabled():  # whoever waits reads for whom
            held.enter_context(sole_run(CASES_RUN))
        yield


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest) -> Any:
    """The same before it was started: an engine and a node image, for a cluster of a case's own."""
    request.getfixturevalue("alone")
    from environments.kind import KindEnvironment  # noqa: PLC0415 - unit tests here need no kind

    world = KindEnvironment(name=request.config.getoption("cluster_name"))
    try:
        world.prepare()
    except SetupError as reason:
        lacking("no cluster for the e2e cases", reason)
    return world


@pytest.fixture(autouse=True)
def _new_enough(request: pytest.FixtureRequest) -> None:
    """Skip a case that needs a newer Kubernetes than the cluster has."""
    marker = request.node.get_closest_marker("since")
    if marker is None:
        return
    name = "prepared" if "prepared" in request.fixturenames else "environment"
    world: Environment = request.getfixturevalue(name)
    needed = tuple(map(int, marker.args[0].split(".")))
    if world.version < needed:
        pytest.skip(f"needs Kubernetes {marker.args[0]}: {world.described()}")


@pytest.fixture
def case(environment: Environment, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A namespace of the case's own, gone with all its pods when the case ends."""
    words = request.node.name.removeprefix("test_").split("_")[:5]
    corner = Case(environment, "-".join([*words, secrets.token_hex(3)]))
    corner.open()
    try:
        yield corner
    finally:
        corner.close()


def _demand(environment: Environment, met: bool, words: str) -> None:
    """Cases are skipped where a given cluster or the machine in QEMU lacks something.

    Our own cluster has it or is wrong.
    """
    other = isinstance(environment, GivenEnvironment) or bool(os.environ.get(MACHINE))
    if not met and other:
        pytest.skip(words)
    assert met, words


@pytest.fixture(scope="session")
def small(environment: Environment) -> str:
    """Name of the node with the fewest GPUs, at least two of equal size."""
    fewest = min(environment.nodes, key=lambda node: len(environment.nodes[node]))
    sizes = {gpu.units for gpu in environment.nodes[fewest]}
    _demand(environment, len(environment.nodes[fewest]) >= 2, "the cases need a node of two GPUs")
    _demand(environment, len(sizes) == 1, "the cases need GPUs of equal size")
    return fewest


@pytest.fixture(scope="session")
def large(environment: Environment) -> str:
    """Name of the node with the most GPUs, eight or more."""
    most = max(environment.nodes, key=lambda node: len(environment.nodes[node]))
    _demand(environment, len(environment.nodes[most]) >= 8, "the cases need a node of eight GPUs")
    return most


@pytest.fixture(scope="session")
def linked(environment: Environment) -> str:
    """Name of the node that is a DGX-1 with V100, whose GPUs are joined by NVLinks."""
    volta = machines.gpus("dgx1-volta")
    found = [node for node, gpus in environment.nodes.items() if gpus == volta]
    _demand(environment, bool(found), "the cases need a node with the machine dgx1-volta")
    return found[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the state of the cluster to the report of a case that failed."""
    found = yield
    used: dict[str, Any] = getattr(item, "funcargs", {})
    world = used.get("environment")
    if call.when == "call" and call.excinfo is not None and world is not None:
        spaces = used["case"].namespaces if "case" in used else ()
        state = diagnosis.report(world.kubectl, stack=world.namespace, namespaces=spaces)
        text = f"{world.described()}\n{state}"
        found.sections.append(("cluster", text))  # the item's own were read when it was made
    return found
