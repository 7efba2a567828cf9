"""A kubelet with another root directory, as distributions with a kubelet of their own have it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.case import Case
from environments.waiting import until
from machine.accounts import agree, fill, restart_plugin, sharing
from machine.environment import MachineEnvironment
from machine.nodefiles import NODE
from machine.running import running

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]

ROOT = "/var/lib/k0s/kubelet"


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MachineEnvironment]:
    """A machine whose kubelet and chart have the directory that k0s gives its kubelet."""
    flags = tmp_path / "kubelet"
    flags.write_text(f"KUBELET_EXTRA_ARGS=--root-dir={ROOT}\n")
    values = {"devicePlugin": {"kubeletRoot": ROOT}}
    world = MachineEnvironment(files={"etc/default/kubelet": flags}, values=values)
    yield from running(request, world)


@pytest.mark.timeout(2400)
def test_a_kubelet_with_another_root_directory_shares_gpus(
    environment: MachineEnvironment, case: Case
) -> None:
    """Kubelet moves all of its directories but that of device plugins, and the chart follows."""
    machine, size = environment.machine, environment.nodes[NODE][0].units
    machine.shell(f"test -S {ROOT}/pod-resources/kubelet.sock")
    machine.shell(f"test ! -e {ROOT}/device-plugins && test ! -e /var/lib/kubelet/pods")
    case.create_running(sharing(case, "one", size - 4), sharing(case, "two", size - 4))
    until("annotations agree with kubelet", lambda: agree(environment, case))
    restart_plugin(environment)
    fill(environment, case)
    machine.shell(f"test -s {ROOT}/plugins/gpushare-usage/usage-history.json")
