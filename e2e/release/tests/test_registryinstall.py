"""A release from a registry on a cluster: nodes pull images and the chart comes by `oci://`.

Minutes, so on demand: `make e2e MARK=ondemand CASES=e2e/release/tests/test_registryinstall.py`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import offline
from environments import registry
from environments.case import Case
from environments.kind import CHART, NAMESPACE, RELEASE, KindEnvironment
from environments.owncluster import own_cluster
from host.commands import run_command
from host.errors import SetupError
from host.testing.lacking import lacking
from images import build
from release import publish
from release.imagefiles import SERVICES
from release.version import Commit

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
VERSION = "0.2.0-rc.1"
# Nodes reach the registry under the name that images have on this machine; containerd and Docker
# speak plain HTTP with loopback addresses.
FORWARD = """
gateway=$(ip route show default | awk '{{print $3; exit}}')
sysctl -qw net.ipv4.conf.all.route_localnet=1
iptables -t nat -A OUTPUT -p tcp -d 127.0.0.1 --dport {port} \\
  -j DNAT --to-destination $gateway:{port}
iptables -t nat -A POSTROUTING -p tcp -d $gateway --dport {port} -j MASQUERADE
"""


@pytest.fixture
def nothing_fetched() -> None:
    """Wheels are fetched here: the images are the real ones."""


@pytest.fixture(scope="session")
def environment(prepared: KindEnvironment) -> Iterator[KindEnvironment]:
    """A cluster of the case's own.

    From 1.35 on kubelet does not start a container from a loaded image that it has also pulled from
    a registry, so the other cases could not use the cluster afterwards.
    """
    with own_cluster(f"{prepared.name}-registry") as world:
        yield world


@pytest.fixture(scope="session")
def node(environment: KindEnvironment) -> str:
    """A node of this cluster: fixtures of the session name those of the other cases' cluster."""
    return min(environment.nodes, key=lambda name: len(environment.nodes[name]))


@pytest.fixture
def address(environment: KindEnvironment, tmp_path: Path) -> Iterator[str]:
    """A registry that the nodes of the cluster reach under its name on this machine."""
    folder = tmp_path / "registry"
    folder.mkdir()
    try:
        with registry.running(folder, "0.0.0.0") as name:
            script = FORWARD.format(port=name.rpartition(":")[2])
            for node in (*environment.nodes, environment.control_plane):
                environment.on_node(node, script)
            yield name
    except SetupError as reason:
        lacking("no registry", reason)


def test_a_cluster_installs_a_release_from_a_registry(
    environment: KindEnvironment, case: Case, address: str, node: str, tmp_path: Path
) -> None:
    """Every container of the stack has the digest of the release, and a share runs."""
    built = build.ensure()
    release = publish.Release(
        version=VERSION,
        commit=Commit(id="0" * 40, epoch=build.EPOCH),
        root=ROOT,
        into=tmp_path / "dist",
        registry=f"{address}/team",
    )
    folder = publish.publish(release, [getattr(built, name) for name in SERVICES]).parent
    pushed = json.loads((folder / "release.json").read_text())["pushed"]
    digests = {digest for name, digest in pushed.items() if "/charts/" not in name}
    environment.uninstall()
    values = tmp_path / "values.json"
    values.write_text(json.dumps(from_registry(environment.values, f"{address}/team")))
    words = ["install", RELEASE, f"oci://{address}/team/charts/{CHART.name}", "--plain-http"]
    words += ["--version", VERSION, "--values", str(values), "--wait", "--timeout", "10m"]
    words += ["--namespace", NAMESPACE, "--create-namespace"]
    words += ["--kubeconfig", str(environment.kubeconfig)]
    home = {"HELM_CACHE_HOME": str(tmp_path), "HELM_CONFIG_HOME": str(tmp_path)}
    run_command([offline.ensure_helm(), *words], timeout_s=660, env=home)
    environment.wait_ready()

    used = digests_of_the_stack(environment, address)
    assert used == digests
    case.create_running(case.pod("share", 4, node=node))


def from_registry(values: dict[str, object], name: str) -> dict[str, object]:
    """The values with the registry in place of the images that were loaded into the nodes."""
    found: dict[str, object] = json.loads(json.dumps(values))
    for part in ("extender", "dashboard", "devicePlugin"):
        section = found[part]
        assert isinstance(section, dict)
        del section["image"]
    return found | {"image": {"registry": name}}


def digests_of_the_stack(environment: KindEnvironment, address: str) -> set[str]:
    """Digests of the images that containers of the stack run, as their nodes pulled them."""
    pods = environment.kubectl.items("pods", "-n", NAMESPACE)
    states = [state for pod in pods for state in pod["status"].get("containerStatuses", ())]
    return {state["imageID"].partition("@")[2] for state in states if address in state["image"]}
