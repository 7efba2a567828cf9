"""Fill the Secrets of a release with certificates, and renew those that expire.

Every write carries the resource version that was read, and is made while the authorities are those
that were read, so that two runs at the same time cannot mix certificates of different authorities:
the later one fails, and is repeated by its Job.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog

from gpukube.errors import KubeError, NotFoundError
from gpukube.interface import KubeClient
from gpukube.issuing.authority import (
    Authority,
    CertificateAndKey,
    issued_since,
    with_authorities_of,
)
from gpukube.issuing.plan import Plan, PlanError, SecretPlan, WebhookPlan

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
RELOADED: Final = timedelta(minutes=10)
"""Time after which every pod serves a new certificate; kubelet takes up to two minutes."""
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"

log = structlog.get_logger(__name__)


class RenewalError(Exception):
    """Some objects could not be written; the text has the reason of each. The others were."""


class SecretData(msgspec.Struct, frozen=True):
    """The decoded data of a Secret and the version that it was read in."""

    version: str
    values: dict[str, bytes]

    def pair(self, certificate: str, key: str) -> CertificateAndKey:
        """Two of the values; empty ones where they are missing."""
        return CertificateAndKey(self.values.get(certificate, b""), self.values.get(key, b""))


class CertificateIssuer:
    """Carries out a plan.

    Args:
        now: the time at which certificates are judged and issued.
    """

    def __init__(self, client: KubeClient, plan: Plan, now: datetime) -> None:
        self._client, self._plan, self._now = client, plan, now
        self._stored: dict[str, bytes] = {}  # data of the Secret of the authorities

    async def renew(self) -> int:
        """Issue what is missing or due; the number of objects that were written.

        The API server trusts an authority before pods can serve a certificate of it. An object that
        cannot be written does not keep the others from it, except that the Secrets of a webhook's
        authority stay as they are while its configuration cannot be written, and the configuration
        while the Secret of its server is not in place.

        Raises:
            KubeError: the authorities cannot be read or written.
            RenewalError: the API server refused other objects, they changed meanwhile, or a webhook
                does not exist yet; Helm changes the configuration after the Job.
        """
        authorities, written = await self._authorities()
        in_place: dict[str, CertificateAndKey] = {}
        failures: list[str] = []
        trusted = set(authorities)
        for hooks in self._plan.webhooks:
            try:
                written += await self._trust_also(hooks, authorities[hooks.secret])
            except KubeError as error:
                failures.append(str(error))
                trusted.discard(hooks.secret)
        for each in self._plan.secrets:
            if each.authority not in trusted:
                continue
            with _collecting(failures):
                in_place[each.secret], new = await self._secret(each, authorities[each.authority])
                written += new
        for hooks in self._plan.webhooks:
            with _collecting(failures):
                if hooks.secret in in_place:
                    bundle = authorities[hooks.secret].pair.certificate
                    since = issued_since(in_place[hooks.secret], self._now)
                    written += await self._trust(hooks, bundle, alone=since >= RELOADED)
        if failures:
            raise RenewalError("; ".join(failures))
        return written

    async def _authorities(self) -> tuple[dict[str, Authority], int]:
        """The authority of each server, created where it is missing, broken or near its end."""
        path = self._path(self._plan.authorities)
        stored = await self._read(path)
        found: dict[str, Authority] = {}
        new: dict[str, bytes] = {}
        for name in dict.fromkeys(each.authority for each in self._plan.secrets):
            kept = _authority(stored.pair(f"{name}.crt", f"{name}.key"))
            if kept is None or not kept.usable(self._now):
                kept = Authority.create(f"{name}-ca", self._now)
                new |= {f"{name}.crt": kept.pair.certificate, f"{name}.key": kept.pair.key}
                log.info("authority created", secret=self._plan.authorities, authority=name)
            found[name] = kept
        if new:
            body = {"metadata": {"resourceVersion": stored.version}, "data": _encoded(new)}
            await self._client.patch(path, body)
        self._stored = stored.values | new
        return found, int(bool(new))

    async def _secret(
        self, each: SecretPlan, authority: Authority
    ) -> tuple[CertificateAndKey, int]:
        """The certificate in place, and how many objects were written for it."""
        path = self._path(each.secret)
        stored = await self._read(path)
        bundle = authority.pair.certificate
        found = stored.pair(CERTIFICATE, KEY)
        reason = authority.renewal_reason(found, each.request, self._now)
        if not reason and stored.values.get(AUTHORITY) == bundle:
            return found, 0
        pair = authority.sign(each.request, self._now)
        data = {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITY: bundle}
        await self._write(path, stored.version, {"data": _encoded(data)})
        log.info("certificate issued", secret=each.secret, reason=reason or "another authority")
        return pair, 1

    async def _trust_also(self, hooks: WebhookPlan, authority: Authority) -> int:
        """Make the API server trust an authority beside the one before, where webhooks exist."""
        with suppress(NotFoundError, PlanError):
            return await self._trust(hooks, authority.pair.certificate, alone=False)
        return 0

    async def _trust(self, hooks: WebhookPlan, bundle: bytes, *, alone: bool) -> int:
        """Make the API server trust the certificate of the webhooks.

        Args:
            bundle: the authority of that certificate.
            alone: trust no other any more; until pods have reloaded it, they serve the one before.

        Raises:
            PlanError: a webhook does not exist yet; the others trust the authority.
        """
        path = f"{WEBHOOKS}{hooks.configuration}"
        document: dict[str, Any] = msgspec.json.decode(await self._client.get(path))
        webhooks = document.get("webhooks", [])
        before = [one["clientConfig"].get("caBundle", "") for one in webhooks]
        wanted = [
            bundle if alone else with_authorities_of(bundle, _decoded(text)) for text in before
        ]
        texts = [b64encode(each).decode() for each in wanted]
        if texts != before:
            for one, text in zip(webhooks, texts, strict=True):
                one["clientConfig"]["caBundle"] = text
            version = document["metadata"]["resourceVersion"]
            await self._write(path, version, {"webhooks": webhooks})
            log.info("webhook trusted", configuration=hooks.configuration)
        missing = set(hooks.names) - {one["name"] for one in webhooks}
        if missing:
            raise PlanError(f"{hooks.configuration} has no webhook {', '.join(sorted(missing))}")
        return int(texts != before)

    def _path(self, secret: str) -> str:
        return f"/api/v1/namespaces/{self._plan.namespace}/secrets/{secret}"

    async def _read(self, path: str) -> SecretData:
        document: dict[str, Any] = msgspec.json.decode(await self._client.get(path))
        data = document.get("data") or {}
        values = {name: _decoded(text) for name, text in data.items()}
        return SecretData(document["metadata"]["resourceVersion"], values)

    async def _write(self, path: str, version: str, changes: dict[str, Any]) -> None:
        """Write what an authority signed, or who trusts it, while it is still in force.

        A run that replaces the authorities does so before it writes anything else: of an object
        that was read before this look it writes a later version.

        Raises:
            PlanError: another run replaced the authorities.
        """
        if (await self._read(self._path(self._plan.authorities))).values != self._stored:
            raise PlanError(f"{path}: {self._plan.authorities} changed meanwhile")
        await self._client.patch(path, {"metadata": {"resourceVersion": version}, **changes})


@contextmanager
def _collecting(failures: list[str]) -> Iterator[None]:
    """Add the failure of the block to the list instead of raising it."""
    try:
        yield
    except (KubeError, PlanError) as error:
        failures.append(str(error))


def _authority(pair: CertificateAndKey) -> Authority | None:
    try:
        return Authority(pair)
    except ValueError:
        return None


def _encoded(values: dict[str, bytes]) -> dict[str, str]:
    return {name: b64encode(value).decode() for name, value in values.items()}


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        return b""
