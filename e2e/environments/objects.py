"""Objects that cases look at again and again, without a start of kubectl for every look.

What a user would see is read with kubectl; this is for waiting, which is most of what cases do: a
start of kubectl costs a tenth of a second of processor, which the cluster beside it needs.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.config import load_kube_config
from urllib3.util import Retry

from environments.kubectl import Object

READ_SECONDS = 60
RETRIES = 6
"""Of a read that failed on its way, with pauses of half a second to 16 s between them."""
_UNAVAILABLE = (429, 500, 503, 504)


class Objects:
    """The API server's objects as JSON.

    Args:
        kubeconfig: of the cluster; read at the first request.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    @cached_property
    def _core(self) -> CoreV1Api:
        configuration = Configuration()
        load_kube_config(  # type: ignore[no-untyped-call]
            str(self._kubeconfig), client_configuration=configuration
        )
        configuration.proxy = None  # the cluster is on this machine
        configuration.retries = Retry(RETRIES, backoff_factor=0.5, status_forcelist=_UNAVAILABLE)
        return CoreV1Api(ApiClient(configuration))

    def node(self, name: str) -> Object:
        """A node."""
        return self._one("read_node", name)

    def nodes(self) -> list[Object]:
        """All nodes."""
        return self._list("list_node")

    def pod(self, name: str, namespace: str) -> Object:
        """A pod."""
        return self._one("read_namespaced_pod", name, namespace)

    def pods(self, namespace: str, *, labels: str = "") -> list[Object]:
        """The pods of a namespace, or those of them that a selector takes."""
        return self._list("list_namespaced_pod", namespace, label_selector=labels)

    def pods_of_node(self, node: str) -> list[Object]:
        """The pods of all namespaces that are assigned to a node."""
        return self._list("list_pod_for_all_namespaces", field_selector=f"spec.nodeName={node}")

    def events(self, namespace: str = "", *, fields: str = "") -> list[Object]:
        """The events of a namespace, or of all."""
        verb = "list_namespaced_event" if namespace else "list_event_for_all_namespaces"
        return self._list(verb, *filter(None, (namespace,)), field_selector=fields)

    def _list(self, verb: str, *args: str, **selectors: str) -> list[Object]:
        items: list[Object] = self._one(verb, *args, **selectors)["items"]
        return items

    def _one(self, verb: str, *args: str, **selectors: str) -> Object:
        """The body of an answer, with its fields spelled as the API spells them."""
        ask: Any = getattr(self._core, verb)
        answer = ask(*args, **selectors, _preload_content=False, _request_timeout=READ_SECONDS)
        found: Object = json.loads(answer.data)
        return found
