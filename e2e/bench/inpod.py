"""A program started as one in a pod is: its service account lies where kubelet would have put it.

Clients look at one fixed path, so the program gets a mount namespace in which that path is its own.
"""

import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from environments.controlplane import ControlPlane

_MOUNT: Final = """
mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io &&
ln -s "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"
"""


def argv(plane: ControlPlane, command: Sequence[str]) -> list[str]:
    """Runs ``command``, in the same process in the end, with an account that may do anything."""
    account = plane.folder / "serviceaccount"
    account.mkdir(exist_ok=True)
    (account / "token").touch(mode=0o600)
    (account / "token").write_text(plane.token)
    shutil.copy(plane.authority, account / "ca.crt")
    alone = ["unshare", "--map-root-user", "--mount"]
    return [*alone, "sh", "-c", _MOUNT, "sh", str(account), *command]


def environ(plane: ControlPlane) -> Mapping[str, str]:
    """Where a pod finds the API server."""
    _, _, port = plane.url.rpartition(":")
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
