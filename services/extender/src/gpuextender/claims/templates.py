"""Creates the ResourceClaimTemplates that converted pods wait for, and deletes the others.

Admission has no side effects, so the webhook only names a template. Its contents are in an
annotation of the pod, which a tenant may write: it gives that namespace templates of a fixed shape,
up to a limit, also where pods come and go, and nothing elsewhere. Every replica does the work;
creating twice is harmless.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog

from gpucore.claims.share_template import (
    ShareTemplate,
    decode_contents,
    is_template_name,
    template_name,
    template_object,
)
from gpucore.units import PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_MANAGER, CLAIM_TEMPLATE, MANAGED_BY
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.errors import (
    ConflictError,
    InvalidReplyError,
    KubeError,
    NotFoundError,
    StatusError,
)

API: Final = "/apis/resource.k8s.io/v1"
ALL: Final = f"{API}/resourceclaimtemplates"
MAX_PER_NAMESPACE: Final = 32
"""Number of templates for pods of one namespace that have no claims yet; further pods wait."""
MAX_EXISTING: Final = 4 * MAX_PER_NAMESPACE
"""Number of templates in one namespace, those that no pod needs any more included."""
SWEEP_SECONDS: Final = 300.0
"""A template for which no pod waits is deleted by the second sweep that finds it so."""
PAGE: Final = "500"

Key = tuple[str, str]
"""Namespace and name of a template."""

_OF_ALL: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses that concern every request, not only those about one template."""

log = structlog.get_logger(__name__)


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _Item(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    metadata: _Metadata
    items: list[_Item] | None = None


_LIST: Final = msgspec.json.Decoder(_List)


class ClaimTemplates:
    """The templates that pods need; an event handler of pods.

    Args:
        device_class: of shares.
    """

    def __init__(self, api: KubeClient, device_class: str) -> None:
        self._api, self._class = api, device_class
        self._pods: dict[PodUid, Key] = {}
        self._needed: dict[str, dict[str, ShareTemplate]] = {}
        self._users: dict[Key, set[PodUid]] = {}
        self._known: set[Key] = set()
        self._refused: set[Key] = set()
        self._unused: set[Key] = set()
        self._wake = asyncio.Event()
        self._backoff = Backoff()

    # Pods.

    def on_replace(self, items: Iterable[Pod]) -> None:
        listed = list(items)
        for uid in self._pods.keys() - {pod.uid for pod in listed}:
            self._drop(uid)
        for pod in listed:
            self.on_update(pod, b"")

    def on_update(self, item: Pod, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        text = item.annotations.get(CLAIM_TEMPLATE)
        if text is None or item.finished or not item.namespace or _has_claims(item):
            self._drop(item.uid)
            return
        try:
            contents = decode_contents(text)
        except WireError:
            self._drop(item.uid)
            return
        self._use(item.uid, (item.namespace, template_name(contents, self._class)), contents)

    def on_delete(self, item: Pod) -> None:
        self._drop(item.uid)

    def _use(self, uid: PodUid, key: Key, contents: ShareTemplate) -> None:
        if self._pods.get(uid) == key:
            return
        self._drop(uid)
        self._pods[uid] = key
        self._users.setdefault(key, set()).add(uid)
        self._needed.setdefault(key[0], {}).setdefault(key[1], contents)
        if key not in self._known:
            self._wake.set()

    def _drop(self, uid: PodUid) -> None:
        key = self._pods.pop(uid, None)
        if key is None:
            return
        users, names = self._users[key], self._needed[key[0]]
        users.discard(uid)
        if users:
            return
        del self._users[key], names[key[1]]
        if not names:
            del self._needed[key[0]]
        self._wake.set()  # a pod beyond the limit may have its turn

    # Templates.

    async def run(self) -> None:
        """Create and delete templates for as long as the process lives."""
        sweeping = asyncio.create_task(self._sweep_forever())
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._tried()
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)

    async def _tried(self) -> None:
        try:
            await self.create_due()
        except KubeError as error:
            log.warning("claim templates not created", error=str(error))
            await asyncio.sleep(self._backoff.after_failure(lasted=0))
            self._wake.set()
        else:
            self._backoff = Backoff()

    async def _sweep_forever(self) -> None:
        while True:
            try:
                await self.sweep()
            except KubeError as error:
                log.warning("claim templates not swept", error=str(error))
            await asyncio.sleep(SWEEP_SECONDS)

    async def create_due(self) -> None:
        """Create every template that pods need and that does not exist.

        Raises:
            KubeError: one was not created, and the others were attempted. A template that the API
                server refuses waits for the next sweep instead.
        """
        failures = _Failures()
        for key, contents in list(self._due()):
            with failures.later():
                await self._create(key, contents)
        failures.end()

    def _due(self) -> Iterator[tuple[Key, ShareTemplate]]:
        existing = Counter(namespace for namespace, _ in self._known)
        for namespace, names in self._needed.items():
            allowed = [((namespace, name), contents) for name, contents in names.items()]
            due = [each for each in allowed[:MAX_PER_NAMESPACE] if self._is_due(each[0])]
            room = max(MAX_EXISTING - existing[namespace], 0)
            if len(names) > MAX_PER_NAMESPACE or len(due) > room:
                metrics.CLAIM_TEMPLATES.labels("limited").inc()
            yield from due[:room]

    def _is_due(self, key: Key) -> bool:
        return key not in self._known and key not in self._refused

    async def _create(self, key: Key, contents: ShareTemplate) -> None:
        namespace, name = key
        path = f"{API}/namespaces/{namespace}/resourceclaimtemplates"
        try:
            await self._api.post(path, template_object(contents, namespace, self._class))
        except ConflictError:
            pass
        except StatusError as error:
            if not _refusal(error):
                raise
            self._refused.add(key)  # until the next sweep
            log.warning("claim template refused", namespace=namespace, name=name, error=str(error))
            return
        else:
            metrics.CLAIM_TEMPLATES.labels("created").inc()
            log.info("claim template created", namespace=namespace, name=name)
        self._known.add(key)

    async def sweep(self) -> None:
        """Delete templates that no pod has needed since the last sweep, and look for lost ones.

        Raises:
            KubeError: they cannot be listed, or one was not deleted, and the others were attempted.
        """
        found = await self._listed()
        self._known, self._refused = set(found), set()
        unused = {key for key in found if is_template_name(key[1])} - self._users.keys()
        late, self._unused = unused & self._unused, unused
        self._wake.set()
        failures = _Failures()
        for key in sorted(late):
            with failures.later():
                if key not in self._users:  # a pod may have come meanwhile
                    await self._delete(key)
        failures.end()

    async def _delete(self, key: Key) -> None:
        path = f"{API}/namespaces/{key[0]}/resourceclaimtemplates/{key[1]}"
        try:
            await self._api.delete(path)
        except NotFoundError:
            return
        except StatusError as error:
            if not _refusal(error):
                raise
            log.warning("deletion refused", namespace=key[0], name=key[1], error=str(error))
            return
        finally:
            self._known.discard(key)  # not before: it would be "created" while it is deleted
            self._wake.set()
        metrics.CLAIM_TEMPLATES.labels("deleted").inc()

    async def _listed(self) -> list[Key]:
        """The templates with our label, page by page."""
        found: list[Key] = []
        params: Mapping[str, Any] = {"labelSelector": f"{MANAGED_BY}={CLAIM_MANAGER}"}
        token = ""
        while True:
            query = {**params, "limit": PAGE, **({"continue": token} if token else {})}
            page = _page(await self._api.get(ALL, params=query))
            found += [(each.metadata.namespace, each.metadata.name) for each in page.items or ()]
            token = page.metadata.continue_token or ""
            if not token:
                return found


def _has_claims(pod: Pod) -> bool:
    """Kubernetes has made the pod's claims; before the pod has a node it makes a lost one again."""
    return bool(pod.node) and len(pod.claims) > len(pod.named_claims)


def _page(body: bytes) -> _List:
    try:
        return _LIST.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidReplyError(f"GET {ALL}: not a list: {error}") from error


class _Failures:
    """The first failure among requests about single templates, for after the last of them."""

    def __init__(self) -> None:
        self._first: KubeError | None = None

    @contextmanager
    def later(self) -> Iterator[None]:
        """Keep the failure of the block, unless it concerns every request."""
        try:
            yield
        except KubeError as error:
            if isinstance(error, StatusError) and error.status in _OF_ALL:
                raise
            self._first = self._first or error

    def end(self) -> None:
        """Raise the failure that was kept."""
        if self._first is not None:
            raise self._first


def _refusal(error: StatusError) -> bool:
    """Whether this template is refused: by rights, a quota or an admission policy."""
    return error.status < HTTPStatus.INTERNAL_SERVER_ERROR and error.status not in _OF_ALL
