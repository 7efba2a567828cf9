"""One Helm action through its library, in a process that does nothing else.

Reads a request as JSON from standard input and writes the answer to standard output. Exit status 1
with Helm's own words on standard error when the action fails. Not for people: see
:mod:`gpuinspect.serving.engine`.
"""

import json
import sys
from typing import Any

import helm_python as helm


def main() -> int:
    """Carry out the request; the exit status."""
    request = json.load(sys.stdin)
    try:
        sys.stdout.write(_rendered(request) if request["action"] == "render" else _done(request))
    except helm.HelmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _rendered(request: dict[str, Any]) -> str:
    """All objects, each under a line that names its template, as `helm template` writes them."""
    with helm.Chart.load(request["chart"]) as chart:
        chart.validate_schema(request["values"])
        files = chart.render(
            request["values"], name=request["release"], namespace=request["namespace"]
        )
    objects = {path: text for path, text in files.items() if path.endswith(".yaml")}
    return "".join(
        f"---\n# Source: {path}\n{text.strip()}\n"
        for path, text in sorted(objects.items())
        if text.strip()
    )


def _done(request: dict[str, Any]) -> str:
    """The answer of a cluster; empty from actions that only do."""
    release = request["release"]
    with helm.Config(
        kubeconfig_path=request["kubeconfig"],
        kube_context=request["context"],
        namespace=request["namespace"],
    ) as config:
        match request["action"]:
            case "chart":
                return _chart(config, release)
            case "install":
                config.install(
                    request["chart"], release, request["values"], namespace=request["namespace"]
                )
            case "uninstall":
                config.uninstall(release)
            case other:
                raise ValueError(f"no action {other}")
    return ""


def _chart(config: helm.Config, release: str) -> str:
    try:
        return str(config.get_metadata(release)["chart"])
    except helm.HelmNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
