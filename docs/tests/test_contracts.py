"""Every import contract of these packages is broken by an import that it forbids."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph, build_graph
from importlinter.api import read_configuration
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

ROOT = Path(__file__).parents[2]
CONFIGURATION = read_configuration(str(ROOT / ".importlinter"))
PACKAGES = ("gpudeviceplugin", "gpukube")
FORBIDDEN = {
    "kube": [
        ("gpukube.client", "gpukube.watch.informer"),
        ("gpukube.kubeconfig.finding", "gpukube.client"),
        ("gpukube.events", "gpukube.watch.informer"),
        ("gpukube.backoff", "gpukube.errors"),
        ("gpukube.issuing.plan", "gpukube.testing.store"),
    ],
    "deviceplugin": [
        ("gpudeviceplugin.cluster.events", "gpudeviceplugin.gpus.devices"),
        ("gpudeviceplugin.gpus.devices", "gpudeviceplugin.isolation.modes"),
        ("gpudeviceplugin.isolation.modes", "gpudeviceplugin.kubelet.pod_resources"),
        ("gpudeviceplugin.dra.backend", "gpudeviceplugin.kubelet.endpoint"),
        ("gpudeviceplugin.kubelet.servicer", "gpudeviceplugin.node.usage"),
        ("gpudeviceplugin.node.usage", "gpudeviceplugin.plugin"),
        ("gpudeviceplugin.signals", "gpudeviceplugin.state"),
    ],
}
"""Contracts by id: imports (importer, imported) of which each alone breaks the contract."""
CASES = [(contract, *pair) for contract, pairs in FORBIDDEN.items() for pair in pairs]
CONTRACTS: Mapping[str, type[Contract]] = {"layers": LayersContract}


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    """The imports of the packages as they are."""
    return build_graph(*PACKAGES, cache_dir=None)


def contract_of(contract_id: str) -> Contract:
    """The contract with this id in ``.importlinter``."""
    options: dict[str, Any] = next(
        each for each in CONFIGURATION["contracts_options"] if each["id"] == contract_id
    )
    return CONTRACTS[options["type"]](options["name"], CONFIGURATION["session_options"], options)


def keeps(contract_id: str, graph: ImportGraph) -> bool:
    """The contract holds for these imports."""
    return contract_of(contract_id).check(deepcopy(graph), verbose=False).kept


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_the_packages_keep_their_contract(contract: str, graph: ImportGraph) -> None:
    """The counter-check: without a forbidden import the contract holds."""
    assert keeps(contract, graph)


@pytest.mark.parametrize(("contract", "importer", "imported"), CASES)
def test_an_import_against_the_order_breaks_the_contract(
    contract: str, importer: str, imported: str, graph: ImportGraph
) -> None:
    """Each pair names modules that exist, so a moved module cannot leave a pair without effect."""
    assert {importer, imported} <= graph.modules
    changed = deepcopy(graph)
    changed.add_import(importer=importer, imported=imported)
    assert not keeps(contract, changed)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_folder_without_a_layer_breaks_the_contract(package: str, graph: ImportGraph) -> None:
    """The contract is exhaustive: a new folder has no place until somebody gives it one."""
    changed = deepcopy(graph)
    changed.add_module(f"{package}.new_folder")
    assert not keeps(package.removeprefix("gpu"), changed)
