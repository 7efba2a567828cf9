"""`python -m release.chartpush PACKAGE REGISTRY [--plain-http]`: push a chart, print its digest.

A process of its own, because Helm's library loads a Go runtime, after which a process must not
fork. Credentials are those of `helm registry login`, or of `docker login`.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

import helm_python as helm

from host.commands import run_command

_PUSH_SECONDS: Final = 300


def push(package: Path, registry: str, *, plain_http: bool) -> str:
    """Push a package to `oci://<registry>`; its digest, such as `sha256:...`.

    Raises:
        SetupError: the registry refused or was not reached.
    """
    command = [sys.executable, "-m", "release.chartpush", str(package), registry]
    options = ["--plain-http"] if plain_http else []
    env = {"PYTHONPATH": str(Path(__file__).parents[1])}
    return run_command([*command, *options], timeout_s=_PUSH_SECONDS, env=env).strip()


def main() -> int:
    """Push one package; the exit status."""
    parser = argparse.ArgumentParser(prog="release.chartpush", description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("registry")
    parser.add_argument("--plain-http", action="store_true")
    given = parser.parse_args()
    try:
        print(_pushed(given.package, f"oci://{given.registry}", plain_http=given.plain_http))
    except helm.HelmError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _pushed(package: Path, remote: str, *, plain_http: bool) -> str:
    with (
        helm.Chart.load_archive(package.read_bytes()) as chart,
        helm.RegistryClient(plain_http=plain_http) as client,
    ):
        client.push(package, remote, plain_http=plain_http)
        name = f"{remote}/{chart.name}:{chart.version}"
        return str(client.resolve(name)["digest"])


if __name__ == "__main__":
    sys.exit(main())
