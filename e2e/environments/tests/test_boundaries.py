"""The cases look at the services from outside: nothing in ``e2e`` imports one."""

import re
from pathlib import Path

E2E = Path(__file__).parents[2]
SERVICES = ("gpuextender", "gpudeviceplugin", "gpuinspect")
IMPORT = re.compile(rf"^\s*(?:from|import)\s+(?:{'|'.join(SERVICES)})\b", re.MULTILINE)


def imports() -> list[str]:
    """Imports of services in all programs below ``e2e``, and in the texts that they run in pods."""
    programs = {file: file.read_text() for file in sorted(E2E.rglob("*.py"))}
    return [
        f"{file.relative_to(E2E)}: {found.group().strip()}"
        for file, text in programs.items()
        for found in IMPORT.finditer(text)
    ]


def test_nothing_imports_a_service() -> None:
    """A case that shares code with a service would share its mistakes."""
    assert imports() == []
