"""The words of `helm` that guides use, over Helm's library, where this machine has no `helm`.

Only ``helm install NAME CHART`` and ``helm uninstall NAME`` with the flags below; anything else is
a mistake of the page or of this file, and ends with status 2.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from environments.helm import HelmActionError, HelmClient


def main(arguments: list[str] | None = None) -> int:
    """Do it; the exit status, with Helm's own words on standard error where it is 1."""
    options = _parser().parse_args(arguments)
    helm = HelmClient(Path(os.environ["KUBECONFIG"]), options.namespace, binary=None)
    try:
        if options.verb == "install":
            helm.install(options.release, options.chart, values(options.values))
        else:
            helm.uninstall(options.release)
    except HelmActionError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"{options.verb}ed {options.release}")
    return 0


def values(files: list[Path]) -> dict[str, Any]:
    """All files as one; of keys of the first level the last file's."""
    found: dict[str, Any] = {}
    for file in files:
        found.update(yaml.safe_load(file.read_text()))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="helm")
    verbs = parser.add_subparsers(dest="verb", required=True)
    install, uninstall = verbs.add_parser("install"), verbs.add_parser("uninstall")
    for verb in (install, uninstall):
        verb.add_argument("release")
        verb.add_argument("-n", "--namespace", required=True)
    install.add_argument("chart", type=Path)
    install.add_argument("--create-namespace", action="store_true")
    install.add_argument("-f", "--values", type=Path, action="append", default=[])
    return parser


if __name__ == "__main__":
    sys.exit(main())
