"""Which package of e2e/ may import which: cases the environment, builders what is below them."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

E2E = Path(__file__).parents[2]
PACKAGES = frozenset(
    path.name for path in E2E.iterdir() if path.is_dir() and any(path.glob("*.py"))
)
SERVICES = frozenset({"gpuextender", "gpudeviceplugin", "gpuinspect"})

BELOW: Mapping[str, frozenset[str]] = {
    "host": frozenset(),
    "offline": frozenset({"host"}),
    "preflight": frozenset({"host"}),
    "cluster": frozenset({"host", "offline", "preflight"}),
    "images": frozenset({"host", "cluster"}),
    "mocknvml": frozenset(),
    "environments": frozenset({"host", "offline", "cluster", "images", "mocknvml", "standins"}),
    "cases": frozenset({"environments", "guides"}),
}
"""What a package may import of e2e/ besides itself; packages that are not here may import all."""


def imported(text: str) -> Iterator[str]:
    """Full names of the modules that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def faults(package: str, text: str, *, test: bool = False) -> list[str]:
    """Imports of a module that its package may not have."""
    found = set()
    for name in imported(text):
        top, _, inner = name.partition(".")
        if top in SERVICES:
            found.add(f"{name} is a service's")
        if top not in PACKAGES or top == package:
            continue
        if package in BELOW and top not in BELOW[package] and not test:
            found.add(f"{package} may not import {top}")
        if top == "offline" and not test and (E2E / "offline" / f"{inner}.py").exists():
            found.add(f"{name} is behind the interface of offline")
    return sorted(found)


@pytest.mark.slow
def test_every_module_imports_only_what_its_package_may() -> None:
    """Tests beside the modules may look inside; cases may not."""
    wrong = {
        str(file.relative_to(E2E)): found
        for file in sorted(E2E.rglob("*.py"))
        if (package := file.relative_to(E2E).parts[0])
        if (found := faults(package, file.read_text(), test="tests" in file.parts))
    }
    assert wrong == {}


def test_a_case_that_builds_something_is_found() -> None:
    """Engine, images and offline builds are the environment's; imports in functions count."""
    case = "def test() -> None:\n    import offline.nodebuild\n    from host import docker\n"
    assert faults("cases", case) == [
        "cases may not import host",
        "cases may not import offline",
        "offline.nodebuild is behind the interface of offline",
    ]
    assert faults("cases", "from environments.case import Case\nimport pytest\n") == []


def test_the_inside_of_offline_is_found_in_other_packages() -> None:
    """Its functions are imported from the package itself."""
    assert faults("cluster", "from offline import kubernetes\n") == [
        "offline.kubernetes is behind the interface of offline"
    ]
    assert faults("cluster", "import offline\nfrom offline import NEWEST\n") == []


def test_a_service_is_found_wherever_it_is_imported() -> None:
    """Cases use the services as users do: through the cluster, HTTP and commands."""
    assert faults("bench", "import gpuextender.main\n") == ["gpuextender.main is a service's"]
