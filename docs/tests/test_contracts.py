"""Every import contract of these packages is broken by an import that it forbids."""

import itertools
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph, build_graph
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

ROOT = Path(__file__).parents[2]
CONFIGURATION = read_configuration(str(ROOT / ".importlinter"))
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
    "inspect": [
        ("gpuinspect.cluster.ledger", "gpuinspect.queries.shares"),
        ("gpuinspect.sources.prometheus", "gpuinspect.cluster.collect"),
        ("gpuinspect.queries.top", "gpuinspect.doctor.evidence"),
        ("gpuinspect.defrag.report", "gpuinspect.documents.defrag"),
        ("gpuinspect.layout.shares", "gpuinspect.documents.inspect"),
        ("gpuinspect.documents.schema", "gpuinspect.commands.gpu"),
        ("gpuinspect.layout.whatif", "gpuinspect.web.rendering"),
        ("gpuinspect.web.app", "gpuinspect.commands.watch"),
    ],
    "acyclic": [
        ("gpuinspect.commands.options.reading", "gpuinspect.commands.gpu"),
        ("gpuinspect.web.rendering", "gpuinspect.web.pages.bars"),
        ("gpudeviceplugin.isolation.mps.daemon", "gpudeviceplugin.isolation.modes"),
        ("gpukube.server.connections", "gpukube.server.listening"),
    ],
}
"""Contracts by id: imports (importer, imported) of which each alone breaks the contract."""
ARCHITECTURE = {
    "gpukube": "libs/gpukube/src/gpukube",
    "gpudeviceplugin": "services/deviceplugin/src/gpudeviceplugin",
    "gpuinspect": "services/inspect/src/gpuinspect",
}
"""Packages whose folders ARCHITECTURE.md lists in the order of the contract, and their paths."""
GENERATED = {"proto"}
CASES = [(contract, *pair) for contract, pairs in FORBIDDEN.items() for pair in pairs]
CONTRACTS: Mapping[str, type[Contract]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "layers": LayersContract,
}


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    """The imports of the packages as they are."""
    return build_graph(*ARCHITECTURE, cache_dir=None)


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


@pytest.mark.parametrize("package", ARCHITECTURE)
def test_a_folder_without_a_layer_breaks_the_contract(package: str, graph: ImportGraph) -> None:
    """The contract is exhaustive: a new folder has no place until somebody gives it one."""
    changed = deepcopy(graph)
    changed.add_module(f"{package}.new_folder")
    assert not keeps(package.removeprefix("gpu"), changed)


def layers_of(package: str) -> dict[str, int]:
    """The modules and folders of a package by the number of their layer, from the top."""
    options = contract_of(package.removeprefix("gpu")).contract_options["layers"]
    layers = [layer.replace("|", " ").split() for layer in options]
    return {name: number for number, names in enumerate(layers) for name in names}


@pytest.mark.parametrize("package", ARCHITECTURE)
def test_the_architecture_lists_every_folder_in_the_order_of_the_contract(package: str) -> None:
    """A new or moved folder has its line, and a reader sees which folder stands on which."""
    _, section = (ROOT / "ARCHITECTURE.md").read_text().split(f"\n{ARCHITECTURE[package]}/", 1)
    lines = itertools.takewhile(lambda line: line.startswith("  "), section.splitlines()[1:])
    words = [word for line in lines for word in line[:31].split() if word.endswith("/")]
    folders = {file.parent.name for file in (ROOT / ARCHITECTURE[package]).glob("*/__init__.py")}
    listed = [word.removesuffix("/") for word in words if word.removesuffix("/") in folders]
    layers = layers_of(package)
    assert set(listed) >= folders - GENERATED
    assert listed == sorted(listed, key=lambda folder: layers[folder])
