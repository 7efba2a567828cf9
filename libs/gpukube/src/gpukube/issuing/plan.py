"""The certificates that a release needs, from the command line of the Job."""

import msgspec

from gpukube.issuing.authority import CertificateRequest


class PlanError(Exception):
    """The command line does not name a plan that can be carried out."""


class SecretPlan(msgspec.Struct, frozen=True):
    """A Secret with ``tls.crt``, ``tls.key`` and ``ca.crt``.

    Attributes:
        authority: name of the Secret whose authority signs it; its own name for a server.
    """

    secret: str
    authority: str
    request: CertificateRequest


class WebhookPlan(msgspec.Struct, frozen=True):
    """A webhook configuration whose webhooks trust the authority of a server.

    Attributes:
        names: webhooks that the configuration must have.
    """

    configuration: str
    secret: str
    names: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True):
    """Everything that one run does.

    Attributes:
        namespace: of all Secrets.
        authorities: Secret that keeps the authorities, as ``<secret>.crt`` and ``<secret>.key``.
    """

    namespace: str
    authorities: str
    secrets: tuple[SecretPlan, ...]
    webhooks: tuple[WebhookPlan, ...] = ()


def server_plan(text: str, valid_days: int) -> SecretPlan:
    """Read ``SECRET=NAME[,NAME...]``, a server with an authority of its own.

    Raises:
        PlanError: the text has another form.
    """
    secret, names = _parts(text, "=")
    return SecretPlan(secret, secret, _request(names, valid_days))


def client_plan(text: str, valid_days: int) -> SecretPlan:
    """Read ``SECRET@SERVER=NAME``, a client of the server whose authority signs it.

    Raises:
        PlanError: the text has another form.
    """
    both, names = _parts(text, "=")
    secret, server = _parts(both, "@")
    return SecretPlan(secret, server, _request(names, valid_days, client=True))


def webhook_plan(text: str) -> WebhookPlan:
    """Read ``CONFIGURATION@SECRET=WEBHOOK[,WEBHOOK...]``.

    Raises:
        PlanError: the text has another form.
    """
    both, names = _parts(text, "=")
    configuration, secret = _parts(both, "@")
    return WebhookPlan(configuration, secret, tuple(names.split(",")))


def _parts(text: str, separator: str) -> tuple[str, str]:
    left, found, right = text.partition(separator)
    if not (found and left and right):
        raise PlanError(f"{text!r} has not the form A{separator}B")
    return left, right


def _request(names: str, valid_days: int, *, client: bool = False) -> CertificateRequest:
    return CertificateRequest(tuple(names.split(",")), client=client, valid_days=valid_days)
