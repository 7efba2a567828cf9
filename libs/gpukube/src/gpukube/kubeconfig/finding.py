"""Finds the configuration of a program: a kubeconfig as kubectl does, or the service account."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpukube.config import MOUNTED, ClientConfig, in_cluster
from gpukube.errors import ConfigError

DEFAULT_NAMESPACE: Final = "default"


def configuration(kubeconfig: Path | None, context: str = "") -> ClientConfig:
    """Read a kubeconfig file, or the service account of this pod without one.

    Args:
        kubeconfig: the file, or several with colons between them.
        context: name of a context in it; empty for the current one.

    Raises:
        ConfigError: neither names an API server.
    """
    if kubeconfig is None:
        return in_cluster(os.environ, MOUNTED)
    from gpukube.kubeconfig import plain  # noqa: PLC0415 - a pod has no kubeconfig

    found = plain.read(kubeconfig, context)
    if found is not None:
        return found
    from gpukube.kubeconfig import official  # noqa: PLC0415 - it imports YAML

    return official.read(kubeconfig, context)


async def load(kubeconfig: Path | None) -> ClientConfig:
    """The same, without blocking the event loop for the time that a credential plugin takes."""
    import asyncio  # noqa: PLC0415 - commands have no event loop, and no time to import it

    return await asyncio.to_thread(configuration, kubeconfig)


def found_by_kubectl(kubeconfig: Path | None, context: str = "") -> Path | None:
    """The kubeconfig that kubectl would use; None for the service account of this pod.

    Args:
        context: that the user names, if any; only a kubeconfig has contexts.
    """
    default = Path.home() / ".kube" / "config"
    named = os.environ.get("KUBECONFIG")
    inside = "KUBERNETES_SERVICE_HOST" in os.environ
    if kubeconfig is None and inside and not context and not named and not default.exists():
        return None
    return kubeconfig or Path(named or default)


def default_namespace(kubeconfig: Path | None, context: str = "") -> str:
    """The namespace that kubectl would use: of the context, else of this pod, else ``default``."""
    path = found_by_kubectl(kubeconfig, context)
    with suppress(ConfigError):
        if path is not None:
            return _namespace(path, context) or DEFAULT_NAMESPACE
    inside = "KUBERNETES_SERVICE_HOST" in os.environ
    own = MOUNTED / "namespace"
    return own.read_text().strip() if inside and own.is_file() else DEFAULT_NAMESPACE


def _namespace(path: Path, context: str) -> str:
    from gpukube.kubeconfig import plain  # noqa: PLC0415 - a pod has no kubeconfig

    found = plain.namespace(path, context)
    if found is not None:
        return found
    from gpukube.kubeconfig import official  # noqa: PLC0415 - it imports YAML

    return official.namespace(path, context)
