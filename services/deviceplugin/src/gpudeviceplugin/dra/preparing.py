"""Prepares and unprepares claims one by one: reads the ResourceClaim and keeps its files."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Protocol
from urllib.parse import quote

import structlog

from gpucore.node.claims.prepare import ClaimError, ClaimPreparation, prepare_claim
from gpucore.node.claims.prepared import PreparedClaim
from gpucore.units import PodUid
from gpucore.wire.claim.prepared import AllocatedClaim, decode_allocation, valid_uid
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.holding import ClaimHolder
from gpukube.errors import KubeError, NotFoundError, ServerError, ThrottledError, UnreachableError

log = structlog.get_logger()

CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
RECOUNT_SECONDS: Final = 30.0


class Enforcer(Protocol):
    """Puts limits in force before a container of a claim may start."""

    async def __call__(self, claim: PreparedClaim, pods: Collection[PodUid]) -> None:
        """Have the limits of these pods in force; of those that are known where none is given.

        Raises:
            ClaimError: they are not.
        """


class Claims(Protocol):
    """Reads ResourceClaims."""

    async def get(self, path: str) -> bytes:
        """GET an object."""
        ...


class ClaimPreparer:
    """Prepares the claims of the driver on one node.

    Args:
        node: its GPUs and policy at the moment.
        holder: counts a claim from before its files exist until after they are gone.
        refusal: why the node takes no new claims; empty where it does.
        enforce: ``None`` where nothing has to hold beyond the files.
    """

    def __init__(
        self,
        kube: Claims,
        files: ClaimFiles,
        node: Callable[[], ClaimPreparation],
        *,
        holder: ClaimHolder,
        refusal: Callable[[], str] = str,
        enforce: Enforcer | None = None,
    ) -> None:
        self._kube = kube
        self._files = files
        self._node = node
        self._changing = asyncio.Lock()
        self._holder, self._refusal, self._enforce = holder, refusal, enforce

    async def prepare(self, namespace: str, name: str, uid: str) -> PreparedClaim:
        """Have a claim's files, and the answer for kubelet.

        Raises:
            ClaimError: the claim cannot be prepared, or a limit is not in force.
            KubeError: the API server has no such claim, or does not answer.
            OSError: a file cannot be written.
        """
        if not valid_uid(uid):
            raise ClaimError("the UID of the claim is not valid")
        known = self._files.read(uid)  # some kB: a thread would cost more
        try:
            raw = await self._kube.get(self._path(namespace, name))
        except KubeError as error:
            return await self._known(known, error)
        allocated = self._allocated(raw, uid)
        if known is not None and known.allocated == allocated:
            claim = known
        else:
            claim = self._new(allocated, namespace, name)
        return await self._have(claim, raw, known)

    def _new(self, allocated: AllocatedClaim, namespace: str, name: str) -> PreparedClaim:
        self._accept()
        return prepare_claim(allocated, namespace, name, self._node())

    def _accept(self) -> None:
        why = self._refusal()
        if why:
            raise ClaimError(why)

    async def _have(
        self, claim: PreparedClaim, raw: bytes, known: PreparedClaim | None
    ) -> PreparedClaim:
        """The claim counts before its files exist, so that the node cannot change its API."""
        async with self._changing:
            if claim is not known or self._files.read(claim.uid) is None:
                self._accept()  # the API may have changed meanwhile
            self._holder.hold(claim)
            try:
                prepared = await asyncio.to_thread(self._files.prepare, claim)
            except OSError:
                if known is None:
                    self._holder.release(claim.uid)
                raise
        await self._holder.stop_sweep()
        if self._enforce is not None:
            await self._enforce(claim, [uid for uid, _ in decode_claim(raw).pods])
        return prepared

    async def restore(self) -> None:
        """Write missing files of prepared claims, and count those claims.

        Raises:
            OSError: a directory cannot be used.
        """
        await asyncio.to_thread(self._files.start)
        for claim in await asyncio.to_thread(self._files.prepared):
            self._holder.hold(claim)

    async def unprepare(self, uid: str) -> None:
        """Remove what a claim has; one that was never prepared has nothing.

        Raises:
            OSError: a file cannot be removed.
        """
        async with self._changing:
            await asyncio.to_thread(self._files.unprepare, uid)
            self._holder.release(uid)

    async def follow(self) -> None:
        """Recount the claims periodically, until cancelled.

        During a rolling update kubelet may call the other plugin, whose steps show in the files.
        """
        while True:
            await asyncio.sleep(RECOUNT_SECONDS)
            try:
                await self.recount()
            except OSError as error:
                log.warning("cannot recount the prepared claims", why=str(error))

    async def recount(self) -> None:
        """Count the claims that have files, and no others.

        Raises:
            OSError: the files cannot be read.
        """
        async with self._changing:
            for claim in await asyncio.to_thread(self._files.prepared):
                self._holder.hold(claim)
            self._holder.release_all_but(await asyncio.to_thread(self._files.uids))

    async def remove_deleted(self) -> None:
        """Unprepare the claims that do not exist any more.

        kubelet unprepares what it has prepared, unless it loses its own record. A failure of the
        API server or of the disk leaves the claim for the next start.
        """
        for claim in await asyncio.to_thread(self._files.prepared):
            try:
                if await self._deleted(claim):
                    log.info("unpreparing a deleted claim", claim=claim.uid)
                    await self.unprepare(claim.uid)
            except (KubeError, OSError) as error:
                log.warning("cannot check a prepared claim", claim=claim.uid, why=str(error))

    async def _deleted(self, claim: PreparedClaim) -> bool:
        """A claim that is merely not allocated is not deleted: its pod may still be ending."""
        try:
            raw = await self._kube.get(self._path(claim.namespace, claim.name))
            return decode_claim(raw).uid != claim.uid
        except NotFoundError:
            return True
        except WireError as error:
            log.warning("cannot decode a prepared claim", claim=claim.uid, why=str(error))
            return False

    def _path(self, namespace: str, name: str) -> str:
        names = {"namespace": quote(namespace, safe=""), "name": quote(name, safe="")}
        return CLAIMS.format(**names)

    def _allocated(self, raw: bytes, uid: str) -> AllocatedClaim:
        try:
            allocated = decode_allocation(raw, CLAIM_DRIVER)
        except WireError as error:
            raise ClaimError(str(error)) from error
        if allocated.uid != uid:
            raise ClaimError("a ResourceClaim of this name exists with another UID")
        return allocated

    async def _known(self, known: PreparedClaim | None, error: KubeError) -> PreparedClaim:
        """A claim prepared before needs no API server that is down; any other answer counts."""
        down = isinstance(error, (UnreachableError, ServerError, ThrottledError))
        if known is None or not down:
            raise error
        async with self._changing:
            prepared = await asyncio.to_thread(self._files.again, known)
            if prepared is None:
                raise error
            self._holder.hold(prepared)
        if self._enforce is not None:  # after a reboot of the node there is no limit left
            await self._enforce(prepared, ())
        log.warning("answering from the checkpoint", claim=known.uid, why=str(error))
        return prepared
