"""The guard of a run: at the deadline it deletes the namespace that a run could not.

python -m gpuprobe.guard SECONDS [NAMESPACE [UNTIL]]

UNTIL is the Unix time of the deadline: a guard that is started again waits for the rest of the time
only, and so tries again at once where the API server did not answer. It waits SECONDS at most, also
where the clock of its node is wrong.

Without a namespace it only ends: its Job is then deleted, and with that all pods it owns.
"""

import os
import ssl
import sys
import time
import urllib.request
from pathlib import Path
from typing import Final

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS: Final = 30


def main(arguments: list[str]) -> int:
    """Wait, then delete the namespace."""
    seconds, namespace, until = (*arguments, "", "")[:3]
    time.sleep(remaining(float(until or "inf"), float(seconds), time.time()))
    if namespace:
        delete(namespace, ACCOUNT)
    return 0


def remaining(until: float, most: float, now: float) -> float:
    """Seconds to wait."""
    return min(max(until - now, 0.0), most)


def delete(namespace: str, account: Path, server: str = "") -> None:
    """Delete a namespace with the rights of this pod's service account.

    Raises:
        OSError: the API server refuses, or does not answer; the Job starts the guard again.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), _port()
    address = server or f"https://{f'[{host}]' if ':' in host else host}:{port}"
    url = f"{address}/api/v1/namespaces/{namespace}"
    token = (account / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, method="DELETE", headers=headers)  # noqa: S310 - https
    authority = account / "ca.crt"
    trusted = ssl.create_default_context(cafile=authority) if authority.exists() else None
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=trusted):  # noqa: S310
        return


def _port() -> str:
    return os.environ.get("KUBERNETES_SERVICE_PORT", "443")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
