"""The API server, as raw bytes: the only file that knows the Kubernetes client.

Configuration and authentication come from the client library, its models do not (they cost 100
MiB and decode slowly). Nothing here retries: who asks knows whether asking again is right.

    ApiError
    ├── ApiUnreachableError   no answer: network, timeout, a broken stream
    └── ApiStatusError        an answer that says no; ``status`` is the HTTP status
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

CALL_SECONDS: Final = 10.0
MERGE_PATCH: Final = "application/merge-patch+json"
JSON: Final = "application/json"

Query = Mapping[str, str]


class ApiError(Exception):
    """The API server did not do what was asked."""


class ApiUnreachableError(ApiError):
    """There was no answer."""


class ApiStatusError(ApiError):
    """The answer was a refusal.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Kube:
    """A connection pool to one API server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> Self:
        """Read the configuration: a file, or the service account of this pod.

        Raises:
            ApiError: there is no usable configuration.
        """
        configuration = Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    str(kubeconfig), client_configuration=configuration
                )
        except (config.ConfigException, OSError) as error:
            raise ApiError(f"no configuration for the API server: {error}") from error
        return cls(ApiClient(configuration))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, path: str, query: Query | None = None) -> bytes:
        """Read one object or a list."""
        return await self._call("GET", path, query=query)

    async def merge(self, path: str, patch: Mapping[str, Any]) -> bytes:
        """Merge ``patch`` into an object; ``None`` removes a field."""
        return await self._call("PATCH", path, body=patch, content_type=MERGE_PATCH)

    async def create(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Create an object."""
        return await self._call("POST", path, body=body)

    async def delete(self, path: str) -> bytes:
        """Delete an object."""
        return await self._call("DELETE", path)

    async def watch(self, path: str, query: Query, *, silence: float) -> AsyncIterator[bytes]:
        """The lines of a watch, until the server ends it.

        Args:
            path: of the list.
            query: of the watch.
            silence: seconds without a byte after which the stream is given up.

        Raises:
            ApiError: the watch was refused or broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS, sock_read=silence)
        response = await self._send("GET", path, query=query, timeout=timeout)
        rest = b""
        try:
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachableError(f"watch {path}: {error!r}") from error
        finally:
            response.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        response = await self._send(
            method, path, query=query, body=body, content_type=content_type, timeout=timeout
        )
        try:
            return await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachableError(f"{method} {path}: {error!r}") from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> aiohttp.ClientResponse:
        _, url, headers, sent, _ = await self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": JSON, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._client.call_api(
                method, url, headers, body=sent, _request_timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachableError(f"{method} {path}: {error!r}") from error
        response: aiohttp.ClientResponse = answer.response
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise ApiStatusError(response.status, await _message(response))
        return response


async def _message(response: aiohttp.ClientResponse) -> str:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return response.reason or ""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
