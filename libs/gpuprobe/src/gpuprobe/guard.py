"""The guard of a run: at the deadline it deletes the namespace that a run could not.

python -m gpuprobe.guard SECONDS [NAMESPACE [UNTIL]]

UNTIL is the deadline in Unix seconds of the API server's clock: a guard that is started again waits
for the rest of the time only, and so tries again at once where a request failed. The clock of the
node does not count. It waits SECONDS at most.

Without a namespace it only ends: its Job is then deleted, and with that all pods it owns.
"""

import os
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS: Final = 30
RETRY_SECONDS: Final = 5.0


def main(arguments: list[str]) -> int:
    """Wait, then delete the namespace.

    Raises:
        OSError: the API server refuses, or does not answer; the Job starts the guard again.
    """
    seconds, namespace, until = (*arguments, "", "")[:3]
    if not namespace:
        time.sleep(float(seconds))
        return 0
    wait(float(until or "inf"), float(seconds), server_time)
    request("DELETE", f"/api/v1/namespaces/{namespace}")
    return 0


def wait(until: float, most: float, now: Callable[[], float]) -> None:
    """Wait until a time, at most ``most`` seconds.

    Args:
        now: the clock; it may fail with an OSError and is then read again.
    """
    end = time.monotonic() + most
    while (rest := end - time.monotonic()) > 0:
        try:
            time.sleep(min(max(until - now(), 0.0), rest))
        except OSError:
            time.sleep(min(RETRY_SECONDS, rest))
        else:
            return


def server_time() -> float:
    """Unix seconds by the clock of the API server, which is in every response.

    Raises:
        OSError: it does not answer.
    """
    try:
        headers = request("GET", "/version")
    except HTTPError as error:  # the right to read the version may be missing
        headers = error.headers
    try:
        return parsedate_to_datetime(headers["Date"]).timestamp()
    except (TypeError, ValueError) as error:
        raise OSError(f"the API server sent no time: {error}") from error


def request(method: str, path: str) -> Message:
    """Send a request with the rights of this pod's service account; headers of the response.

    Raises:
        OSError: the API server refuses, or does not answer.
    """
    token = (ACCOUNT / "token").read_text().strip()
    head = {"Authorization": f"Bearer {token}"}
    sent = urllib.request.Request(api_server() + path, method=method, headers=head)  # noqa: S310 - https
    authority = ACCOUNT / "ca.crt"
    trusted = ssl.create_default_context(cafile=authority) if authority.exists() else None
    with urllib.request.urlopen(sent, timeout=ANSWER_SECONDS, context=trusted) as response:  # noqa: S310
        headers: Message = response.headers
        return headers


def api_server() -> str:
    """Address of the API server, from the variables that kubelet sets."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
