"""The file of ``gpushare whatif``: YAML of pods and of objects with pod templates."""

import sys
from pathlib import Path
from typing import Final

import yaml

from gpucore.simulate.manifests import RefusedPodError, WorkloadPods, wanted_pods
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpuinspect.errors import InspectError

STDIN: Final = Path("-")


class ManifestError(InspectError):
    """The file has no pod to place."""


def read(path: Path, names: Names) -> list[WorkloadPods]:
    """The pods of a file, or of standard input for ``-``.

    Args:
        path: of the file.
        names: of the resources, whose amounts must be such as the API server takes.

    Raises:
        ManifestError: it cannot be read, is no YAML, holds no pod, or one that cannot be created.
    """
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
        found = wanted_pods(yaml.safe_load_all(text), names)
    except OSError as error:
        raise ManifestError(f"cannot read {path}: {error.strerror}") from error
    except RefusedPodError as error:
        raise ManifestError(str(error)) from error
    except (yaml.YAMLError, WireError, ValueError) as error:
        raise ManifestError(f"{path} is not a manifest of pods: {error}") from error
    if not found:
        raise ManifestError(f"{path} contains no Pod and no object with a pod template")
    return found
