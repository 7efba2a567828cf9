"""The Kubernetes API server as bytes: the only file that knows a Kubernetes client.

The official client gives kubeconfig files, exec plugins and in-cluster credentials; its models are
not used, because decoding with them takes twenty times longer than with the narrow decoders of the
core. What is sent are GETs and reviews of tokens, which store nothing. What changes a cluster is
Helm, for ``gpushare serve``, and the patches of ``gpushare hold-nvidia-plugin``.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import urllib3
from kubernetes import client
from kubernetes import config as _config

from gpuinspect.errors import ClusterError, ForbiddenError, NotFoundError

PAGE: Final = 500
config: Any = _config  # the package says no types
_JSON_PATCH: Final = "application/json-patch+json"
_FORBIDDEN: Final = frozenset({401, 403})


class _ListMetadata(msgspec.Struct):
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct):
    metadata: _ListMetadata


class _Status(msgspec.Struct):
    message: str = ""


class Kube:
    """One API server with the credentials to read it."""

    def __init__(self, api: client.ApiClient, *, timeout: float) -> None:
        self._api = api
        self._timeout = timeout

    @classmethod
    def connect(cls, *, kubeconfig: Path | None, context: str | None, timeout: float) -> Self:
        """Credentials as kubectl finds them, or those of the pod this runs in.

        Raises:
            ClusterError: there are none, or they cannot be read.
        """
        try:
            return cls(_api(kubeconfig, context), timeout=timeout)
        except (config.ConfigException, OSError, ValueError) as error:
            raise ClusterError(f"no usable kubeconfig: {error}") from error

    def get(self, path: str, **query: str) -> bytes:
        """The body of the answer to a GET.

        Raises:
            NotFoundError: 404.
            ForbiddenError: 401 or 403.
            ClusterError: anything else but success.
        """
        return self._sent("GET", path, query=list(query.items()))

    def ask(self, path: str, review: Mapping[str, Any]) -> bytes:
        """The answer to a review: a question that is posted and not stored.

        Raises:
            ClusterError: as :meth:`get`.
        """
        return self._sent("POST", path, body=review)

    def patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> bytes:
        """The object as a JSON patch made it.

        Raises:
            ClusterError: as :meth:`get`; also where the object has changed meanwhile.
        """
        return self._sent("PATCH", path, body=list(operations))

    def _sent(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> bytes:
        kind = {"Content-Type": _JSON_PATCH} if method == "PATCH" else None
        request = self._api.param_serialize(
            method,
            path,
            query_params=query,
            header_params=kind,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer: Any = self._api.call_api(*request, _request_timeout=self._timeout)
            raw = bytes(answer.read())
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            words = " ".join(str(_root(error)).split())  # the client writes over several lines
            raise ClusterError(f"the API server does not answer: {words}") from error
        _check(answer.status, path, raw)
        return raw

    def pages(self, path: str, *, cached: bool = False, **query: str) -> Iterator[bytes]:
        """The pages of a list, one after the other.

        Args:
            path: of the list.
            cached: whatever the API server has at hand will do, which spares its store; for lists
                that are read again and again.
            query: parameters of the list.

        Raises:
            ClusterError: as :meth:`get`.
        """
        token = ""
        while True:
            # A token stands for a version already, and the API server takes no second one.
            fresh: Mapping[str, str] = {"resourceVersion": "0"} if cached else {}
            start = {"continue": token} if token else fresh
            body = self.get(path, limit=str(PAGE), **query, **start)
            yield body
            token = _continue(body)
            if not token:
                return


def _api(kubeconfig: Path | None, context: str | None) -> client.ApiClient:
    settings = client.Configuration()
    if kubeconfig is None and context is None and _only_in_cluster():
        config.load_incluster_config(client_configuration=settings)
        return client.ApiClient(configuration=settings)
    path = None if kubeconfig is None else str(kubeconfig)
    config.load_kube_config(
        config_file=path, context=context, client_configuration=settings, persist_config=False
    )
    return client.ApiClient(configuration=settings)


def _only_in_cluster() -> bool:
    """A kubeconfig goes first, as it does for kubectl."""
    default = Path.home() / ".kube" / "config"
    inside = "KUBERNETES_SERVICE_HOST" in os.environ
    return inside and not os.environ.get("KUBECONFIG") and not default.exists()


def _check(status: int, path: str, body: bytes) -> None:
    if status < 300:
        return
    text = f"{path}: {status} {_message(body)}".rstrip()
    if status == 404:
        raise NotFoundError(text)
    raise (ForbiddenError if status in _FORBIDDEN else ClusterError)(text)


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Status).message
    except msgspec.MsgspecError:
        return ""


def _continue(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_List).metadata.continue_token or ""
    except msgspec.MsgspecError as error:
        raise ClusterError(f"the API server's list cannot be read: {error}") from error


def _root(error: BaseException) -> BaseException:
    """What lies under the client's layers: the sentence that helps."""
    reason = getattr(error, "reason", None)
    return _root(reason) if isinstance(reason, BaseException) else error
