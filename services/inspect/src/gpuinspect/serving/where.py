"""The namespace that a command means where none is said: that of the context, as kubectl has it."""

import os
from pathlib import Path
from typing import Any, Final

from kubernetes import config as _config

IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT: Final = "default"
config: Any = _config  # the package says no types


def namespace(kubeconfig: Path | None, context: str) -> str:
    """Of the context, or of the pod this runs in, else ``default``."""
    path = None if kubeconfig is None else str(kubeconfig)
    try:
        contexts, active = config.list_kube_config_contexts(config_file=path)
    except (config.ConfigException, OSError):
        return _in_cluster()
    named = [each for each in contexts if each["name"] == context]
    chosen = named[0] if named else active
    return str(chosen.get("context", {}).get("namespace") or DEFAULT)


def _in_cluster() -> str:
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and IN_CLUSTER.is_file()
    return IN_CLUSTER.read_text().strip() if inside else DEFAULT
