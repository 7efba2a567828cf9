"""Takes away what the installed packages carry and the services never import.

Runs while a service's image is built, after its wheels are installed and before they are compiled.
The Kubernetes client's models and APIs are most of an image: the services speak to the API server
in bytes and take only configuration and connection from the client, which loads everything else
lazily. A test holds the services to that.
"""

import shutil
import sys
from pathlib import Path

GENERATED = (
    "kubernetes/client/api",
    "kubernetes/client/models",
)
"""Packages of which only ``__init__`` is kept, which names the others and loads them on use."""
UNUSED = ("kubernetes/aio",)
"""Packages that are removed as a whole."""


def prune(library: Path) -> None:
    """Remove generated code and the packages' own tests below a library's folder."""
    for packages in library.glob("python3*/site-packages"):
        for name in GENERATED:
            for path in (packages / name).glob("*.py"):
                if path.name != "__init__.py":
                    path.unlink()
        for name in UNUSED:
            shutil.rmtree(packages / name, ignore_errors=True)
        for tests in [*packages.glob("*/tests"), *packages.glob("*/test")]:
            shutil.rmtree(tests)


if __name__ == "__main__":
    prune(Path(sys.argv[1]))
