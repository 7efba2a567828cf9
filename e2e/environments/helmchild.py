"""One Helm action through its library, in a process that does nothing else.

Reads a request as JSON from standard input, writes the answer as JSON to standard output. Exit
status 1 with Helm's own words on standard error when the action fails. Not for people: see
:mod:`environments.helm`.
"""

import json
import sys
from typing import Any

import helm_python as helm


def main() -> int:
    """Carry out the request; the exit status."""
    request = json.load(sys.stdin)
    try:
        with helm.Config(
            kubeconfig_path=request["kubeconfig"], namespace=request["namespace"]
        ) as config:
            json.dump(_answer(config, request), sys.stdout)
    except helm.HelmError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _answer(config: helm.Config, request: dict[str, Any]) -> str:
    release = request["release"]
    match request["action"]:
        case "status":
            return _status(config, release)
        case "install":
            config.install(
                request["chart"],
                release,
                request["values"],
                namespace=request["namespace"],
                create_namespace=True,
            )
        case "upgrade":
            config.upgrade(
                request["chart"], release, request["values"], namespace=request["namespace"]
            )
        case "uninstall":
            config.uninstall(release, ignore_not_found=True, wait="watcher")
        case "test":
            return str(config.test(release, logs=True).get("logs", ""))
        case other:
            raise ValueError(f"no action {other}")
    return ""


def _status(config: helm.Config, release: str) -> str:
    try:
        return str(config.status(release)["status"])
    except helm.HelmNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
