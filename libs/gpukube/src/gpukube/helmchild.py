"""One Helm action through its library, in a process that does nothing else.

``python -m gpukube.helmchild`` reads a request as JSON from standard input and writes the answer to
standard output; exit status 1 with Helm's own error message on standard error when the action
fails. The library loads a Go runtime, after which a process must not fork: so commands and tests
start this process for each action. It needs the package helm-python-sdk.
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
    """The answer of an action on a cluster; empty from actions that return nothing.

    ``options`` of the request are keyword arguments of the library's own call.
    """
    release, namespace = request["release"], request["namespace"]
    options = request.get("options", {})
    with helm.Config(
        kubeconfig_path=request["kubeconfig"],
        kube_context=request.get("context"),
        namespace=namespace,
    ) as config:
        match request["action"]:
            case "chart":
                return _of_release(config.get_metadata, release, "chart")
            case "status":
                return _of_release(config.status, release, "status")
            case "install" | "upgrade" as verb:
                call = getattr(config, verb)
                call(request["chart"], release, request["values"], namespace=namespace, **options)
            case "rollback":
                config.rollback(release, **options)
            case "uninstall":
                config.uninstall(release, **options)
            case "test":
                return str(config.test(release, logs=True).get("logs", ""))
            case other:
                raise ValueError(f"no action {other}")
    return ""


def _of_release(read: Any, release: str, field: str) -> str:
    """A field of what Helm has recorded of a release; empty where there is none of the name."""
    try:
        return str(read(release)[field])
    except helm.HelmNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
