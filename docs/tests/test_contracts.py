"""Every import contract is broken by an import that it forbids, and a page lists every folder."""

import itertools
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph, build_graph
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

ROOT = Path(__file__).parents[2]
CONFIGURATION = read_configuration(str(ROOT / ".importlinter"))
FORBIDDEN = {
    "services": [("gpuextender.state", "gpuinspect.errors")],
    "layers": [
        ("gpukube.client", "gpuextender.state"),
        ("gpucore.model.links", "gpukube.errors"),
        ("gpucore.model.links", "gpuprobe.driver"),
    ],
    "core": [
        ("gpucore.wire.quantity", "gpucore.simulate.hosts"),
        ("gpucore.units", "gpucore.model"),
        ("gpucore.topology.policies", "gpucore.testing.machines"),
        ("gpucore.model.links", "gpucore.wire.names"),
        ("gpucore.wire.constraints", "gpucore.kubescheduler.node_fit"),
        ("gpucore.accounting.node_capacity", "gpucore.topology.static"),
        ("gpucore.topology.policies", "gpucore.accounting.node_info"),
        ("gpucore.kubescheduler.node_fit", "gpucore.accounting.node_info"),
        ("gpucore.accounting.ledger", "gpucore.scheduling.policy"),
        ("gpucore.scheduling.plain_shares", "gpucore.explain.sentences"),
        ("gpucore.gang.placement", "gpucore.explain.sentences"),
        ("gpucore.nomination", "gpucore.gang.members"),
        ("gpucore.claims.facts", "gpucore.explain.claims"),
        ("gpucore.simulate.questions", "gpucore.explain.answers"),
        ("gpucore.explain.pods", "gpucore.defrag.planning"),
        ("gpucore.scheduling.fit", "gpucore.node.health.breaker"),
    ],
    "extender": [
        ("gpuextender.state", "gpuextender.http.routes"),
        ("gpuextender.state", "gpuextender.claims.templates"),
        ("gpuextender.scheduling.filter", "gpuextender.nomination.nominator"),
        ("gpuextender.nomination.nominator", "gpuextender.claims.nominator"),
        ("gpuextender.http.routes", "gpuextender.webhook"),
        ("gpuextender.metrics", "gpuextender.settings"),
    ],
    "kube": [
        ("gpukube.client", "gpukube.watch.informer"),
        ("gpukube.kubeconfig.finding", "gpukube.client"),
        ("gpukube.events", "gpukube.watch.informer"),
        ("gpukube.backoff", "gpukube.errors"),
        ("gpukube.issuing.plan", "gpukube.testing.store"),
    ],
    "probe": [
        ("gpuprobe.driver", "gpuprobe.worker"),
        ("gpuprobe.checks.verdicts", "gpuprobe.driver"),
    ],
    "checks-pure": [("gpuprobe.checks.verdicts", "os")],
    "deviceplugin": [
        ("gpudeviceplugin.cluster.events", "gpudeviceplugin.gpus.devices"),
        ("gpudeviceplugin.gpus.devices", "gpudeviceplugin.isolation.modes"),
        ("gpudeviceplugin.isolation.modes", "gpudeviceplugin.kubelet.pod_resources"),
        ("gpudeviceplugin.dra.driver", "gpudeviceplugin.kubelet.endpoint"),
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
        ("gpucore.wire.pod.spec", "gpucore.wire.lists"),
        ("gpucore.node.allocation.device_ids", "gpucore.node.isolation.cdi"),
        ("gpuextender.scheduling.binding", "gpuextender.scheduling.bind"),
        ("gpuinspect.commands.options.reading", "gpuinspect.commands.gpu"),
        ("gpuinspect.web.rendering", "gpuinspect.web.pages.bars"),
        ("gpudeviceplugin.isolation.mps.daemon", "gpudeviceplugin.isolation.modes"),
        ("gpukube.server.connections", "gpukube.server.listening"),
    ],
    "kubernetes-io": [("gpuextender.state", "kubernetes")],
    "kubernetes-io-aiohttp": [("gpuextender.state", "aiohttp")],
    "helm-library": [("gpuinspect.errors", "gpukube.helmchild")],
    "tests-apart": [
        ("gpuinspect.errors", "gpucore.testing"),
        ("gpuinspect.errors", "gpukube.testing"),
    ],
    "core-pure": [("gpucore.model.links", "asyncio"), ("gpucore.units", "time")],
    "nvml": [("gpuextender.state", "pynvml")],
}
"""Contracts by id: imports (importer, imported) of which each alone breaks the contract."""
ARCHITECTURE = {
    "gpucore": "libs/gpucore/src/gpucore",
    "gpukube": "libs/gpukube/src/gpukube",
    "gpuprobe": "libs/gpuprobe/src/gpuprobe",
    "gpuextender": "services/extender/src/gpuextender",
    "gpudeviceplugin": "services/deviceplugin/src/gpudeviceplugin",
    "gpuinspect": "services/inspect/src/gpuinspect",
}
"""Packages whose folders ARCHITECTURE.md lists in the order of the contract, and their paths."""
UNORDERED = {"e2e": "e2e"}
"""Packages whose folders ARCHITECTURE.md lists in any order, and their paths."""
GENERATED = {"proto"}
PACKAGES = ("gpucore", "gpukube", "gpuprobe", "gpuextender", "gpudeviceplugin", "gpuinspect")
LONGEST_CHAIN = 16
CASES = [(contract, *pair) for contract, pairs in FORBIDDEN.items() for pair in pairs]
CONTRACTS: Mapping[str, type[Contract]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
}


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    """The imports of the packages as they are."""
    return build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)


def contract_of(contract_id: str) -> Contract:
    """The contract with this id in ``.importlinter``."""
    options: dict[str, Any] = next(
        each for each in CONFIGURATION["contracts_options"] if each["id"] == contract_id
    )
    return CONTRACTS[options["type"]](options["name"], CONFIGURATION["session_options"], options)


def keeps(contract_id: str, graph: ImportGraph) -> bool:
    """The contract holds for these imports."""
    return contract_of(contract_id).check(deepcopy(graph), verbose=False).kept


@pytest.mark.parametrize("package", PACKAGES)
def test_no_chain_of_imports_is_too_long_to_follow(graph: ImportGraph, package: str) -> None:
    """From a module down to one that imports no other, through the core where it leads there."""

    @cache
    def chain(module: str) -> tuple[str, ...]:
        own = (
            each
            for each in graph.find_modules_directly_imported_by(module)
            if each.partition(".")[0] in PACKAGES
        )
        return (module, *max((chain(each) for each in own), key=len, default=()))

    longest = max((chain(module) for module in graph.find_descendants(package)), key=len)
    assert len(longest) <= LONGEST_CHAIN, longest


def test_every_contract_has_an_import_that_breaks_it() -> None:
    """A contract that nothing can break holds nothing."""
    assert FORBIDDEN.keys() == {each["id"] for each in CONFIGURATION["contracts_options"]}


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_the_packages_keep_their_contract(contract: str, graph: ImportGraph) -> None:
    """The counter-check: without a forbidden import the contract holds."""
    assert keeps(contract, graph)


@pytest.mark.parametrize(("contract", "importer", "imported"), CASES)
def test_an_import_against_the_order_breaks_the_contract(
    contract: str, importer: str, imported: str, graph: ImportGraph
) -> None:
    """Each importer exists, so a moved module cannot leave a pair without effect."""
    assert importer in graph.modules
    assert imported in graph.modules or imported.partition(".")[0] not in PACKAGES
    changed = deepcopy(graph)
    changed.add_import(importer=importer, imported=imported)
    assert not keeps(contract, changed)


@pytest.mark.parametrize("package", ARCHITECTURE)
def test_a_folder_without_a_layer_breaks_the_contract(package: str, graph: ImportGraph) -> None:
    """The contract is exhaustive: a new folder has no place until the contract gives it one."""
    changed = deepcopy(graph)
    changed.add_module(f"{package}.new_folder")
    assert not keeps(package.removeprefix("gpu"), changed)


def layers_of(package: str) -> dict[str, int]:
    """The modules and folders of a package by the number of their layer, from the top."""
    options = contract_of(package.removeprefix("gpu")).contract_options["layers"]
    layers = [layer.replace("|", " ").split() for layer in options]
    return {name: number for number, names in enumerate(layers) for name in names}


def folders_of(path: str) -> set[str]:
    """The folders of a package that have files in the repository, but for its tests."""
    found = {file.relative_to(ROOT / path).parts[0] for file in (ROOT / path).glob("*/[!_.]*")}
    return {name for name in found if not name.startswith((".", "_"))} - GENERATED - {"tests"}


def listed(path: str) -> list[str]:
    """The names of folders in the section of ARCHITECTURE.md on a package, as they come."""
    _, section = (ROOT / "ARCHITECTURE.md").read_text().split(f"\n{path}/", 1)
    lines = itertools.takewhile(lambda line: line.startswith("  "), section.splitlines()[1:])
    words = (word for line in lines for word in line[:31].split())
    return [word.removesuffix("/") for word in words if word.endswith("/")]


@pytest.mark.parametrize("path", [*ARCHITECTURE.values(), *UNORDERED.values()])
def test_the_architecture_lists_every_folder_and_no_other(path: str) -> None:
    """A new, moved or removed folder changes the page."""
    found = listed(path)
    assert set(found) == folders_of(path)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("package", ARCHITECTURE)
def test_the_architecture_lists_folders_in_the_order_of_the_contract(package: str) -> None:
    """A reader sees which folder stands on which."""
    layers, found = layers_of(package), listed(ARCHITECTURE[package])
    assert found == sorted(found, key=layers.__getitem__)
