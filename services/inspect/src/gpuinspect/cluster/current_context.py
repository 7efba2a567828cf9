"""Which API server a command talks to: the kubeconfig, context, server and user, for messages.

Read from the files themselves, which is quick and works where the official client refuses them.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpuinspect.cluster.collect import ClusterSource

IN_CLUSTER: Final = "the service account of this pod"


class CurrentContext(msgspec.Struct, frozen=True):
    """The context of the kubeconfig that a command uses, and the API server it leads to.

    Attributes:
        files: kubeconfig files that were tried, in order; empty inside a pod.
        context: its name; empty where none is chosen.
        contexts: names of all contexts.
        server: URL of the API server; empty unknown.
        user: name of the user's entry in the kubeconfig; empty unknown.
        trouble: why a file cannot be read; empty where all can.
    """

    files: tuple[Path, ...] = ()
    context: str = ""
    contexts: tuple[str, ...] = ()
    server: str = ""
    user: str = ""
    trouble: str = ""


def current_context(source: ClusterSource) -> CurrentContext:
    """Server, context and user of a source's kubeconfig; never raises."""
    from gpukube.kubeconfig.finding import found_by_kubectl  # noqa: PLC0415 - no client needed

    found = found_by_kubectl(source.kubeconfig, source.context or "")
    if found is None:
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{it}", "") for it in ("HOST", "PORT"))
        name = f"[{host}]" if ":" in host else host
        return CurrentContext(server=f"https://{name}:{port}", user=IN_CLUSTER)
    files = tuple(Path(part) for part in str(found).split(os.pathsep) if part)
    documents, trouble = [], []
    for file in files:
        try:
            documents.append(_document(file))
        except (OSError, ValueError, yaml.YAMLError) as error:
            trouble.append(_reason(file, error))
    return _merged(files, documents, source.context or "", trouble[0] if trouble else "")


def _document(file: Path) -> Mapping[str, Any]:
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise ValueError("it is not a kubeconfig, which is a YAML mapping")  # noqa: TRY004
    for field in ("contexts", "clusters", "users"):
        if not isinstance(document.get(field), list | None):
            raise ValueError(f"{field} is not a list")  # noqa: TRY004
    return document


def _reason(file: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{file}: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return f"{file} is not a text file"
    if isinstance(error, yaml.YAMLError):
        return f"{file} is not YAML"
    return f"{file}: {error}"


def _merged(
    files: tuple[Path, ...], documents: list[Mapping[str, Any]], context: str, trouble: str
) -> CurrentContext:
    """The first file that has a value wins, as for kubectl."""
    current = next((str(d["current-context"]) for d in documents if d.get("current-context")), "")
    name = context or current
    contexts = dict(_named(documents, "context"))
    its = contexts.get(name, {})
    cluster = dict(_named(documents, "cluster")).get(str(its.get("cluster", "")), {})
    return CurrentContext(
        files=files,
        context=name,
        contexts=tuple(sorted(contexts)),
        server=str(cluster.get("server", "")),
        user=str(its.get("user", "")),
        trouble=trouble,
    )


def _named(
    documents: list[Mapping[str, Any]], what: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in reversed(documents):
        for entry in document.get(f"{what}s") or ():
            value = entry.get(what) if isinstance(entry, dict) else None
            if isinstance(value, dict):
                yield str(entry.get("name", "")), value
