"""Failures between a command and the API server, for people: what happened, where, what to do next.

The texts of :mod:`gpukube.errors` name the request and the system's own words; both stay in the
message, since they are what others search for.
"""

import os
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from gpuinspect.cluster.current_context import IN_CLUSTER, CurrentContext
from gpuinspect.cluster.scoped import VIEWER
from gpuinspect.errors import sentence
from gpukube.errors import (
    ConfigError,
    InvalidReplyError,
    ServerError,
    StatusError,
    ThrottledError,
    UnreachableError,
)


class Diagnosis(msgspec.Struct, frozen=True):
    """What happened, and what to do next."""

    what: str
    step: str


_UNREACHABLE: Final = (
    (
        r"refused|Connect call failed|Errno 111|Errno 61",
        "nothing listens at the address of the API server (connection refused)",
        "check that the cluster runs, and the server's address and port in the kubeconfig",
    ),
    (
        r"Errno -\d|getaddrinfo|Name or service not known|name resolution|nodename nor servname",
        "the name of the API server is unknown to DNS",
        "check the server's name in the kubeconfig and whether a VPN is needed to resolve it",
    ),
    (
        r"WRONG_VERSION_NUMBER|RECORD_LAYER|HTTP_REQUEST",
        "the port does not speak TLS, but the kubeconfig uses https",
        "check the port; write http:// in the kubeconfig if the server is meant to have no TLS",
    ),
    (
        r"certificate has expired|certificate is not yet valid",
        "the certificate of the API server is not valid now",
        "compare the clocks of both machines; run 'kubeadm certs check-expiration' on the server",
    ),
    (
        r"(IP address|Hostname) mismatch",
        "the certificate of the API server is for other addresses",
        "use an address that the certificate names, or set tls-server-name in the kubeconfig",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        "the certificate of the API server is not trusted",
        "check certificate-authority-data in the kubeconfig, and that no proxy replaces it",
    ),
    (
        r"SSL|TLS|ALERT",
        "the TLS connection failed",
        "check the server's address and the client certificate in the kubeconfig",
    ),
    (
        r"[Tt]imed? ?out|TimeoutError",
        "the API server did not reply in time",
        "check network, VPN and firewall, or allow more time with --request-timeout",
    ),
    (
        r"incomplete reply",
        "the connection was closed before the reply was complete",
        "try again",
    ),
    (
        r"no HTTP",
        "the port does not speak HTTP",
        "check the server's address and port in the kubeconfig",
    ),
    (
        r"unreachable|No route to host|Errno 113|Errno 101",
        "there is no network route to the API server",
        "check network and VPN",
    ),
    (
        r"closed|reset|Errno 104|disconnected",
        "the connection was closed before a reply came",
        "check the server's address and scheme (https) in the kubeconfig; then try again",
    ),
)
_CANNOT: Final = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<what>\w+)"')
_NAMESPACED: Final = re.compile(r'in the namespace "(?P<namespace>[^"]*)"')
_TLS_WANTED: Final = "HTTP request to an HTTPS server"
_READ: Final = frozenset({"nodes", "pods", "events", "resourcequotas"})
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")


def lines(error: Exception, current: CurrentContext) -> Iterator[str]:
    """The error message in lines: what happened, where, and the next step."""
    found = diagnosed(error, current)
    yield f"error: {found.what}"
    yield f"  where: {where(current)}"
    yield f"  next: {found.step}"


def where(current: CurrentContext) -> str:
    """Server, context, user and kubeconfig, without the unknown ones."""
    files = ", ".join(map(str, current.files))
    parts = [
        f"server {current.server}" if current.server else "no server",
        f"context {current.context}" if current.context else "",
        f"user {current.user}" if current.user and current.user != IN_CLUSTER else "",
        f"kubeconfig {files}" if files else IN_CLUSTER,
    ]
    return ", ".join(part for part in parts if part)


def diagnosed(error: Exception, current: CurrentContext) -> Diagnosis:
    """The cause of a failure and the next step."""
    if isinstance(error, ConfigError):
        return _configuration(error, current)
    if isinstance(error, UnreachableError):
        return _unreachable(error)
    if isinstance(error, InvalidReplyError) or _is_page(str(error)):
        return _stranger(error)
    if isinstance(error, StatusError):
        return _refusal(error, current)
    return Diagnosis(sentence(error), "try again")


def _configuration(error: ConfigError, current: CurrentContext) -> Diagnosis:
    files = ", ".join(map(str, current.files))
    if not any(file.exists() for file in current.files):
        return Diagnosis(
            f"no kubeconfig: tried {files or 'the service account of this pod'} ({error})",
            "give --kubeconfig FILE or set KUBECONFIG; the administrator of the cluster, or the"
            " command line of the cloud, writes one",
        )
    if current.trouble:
        return Diagnosis(
            f"the kubeconfig cannot be read: {current.trouble}",
            "give another file with --kubeconfig or KUBECONFIG",
        )
    if current.context not in current.contexts:
        if not current.contexts:
            return Diagnosis(
                "the kubeconfig has no contexts, as after its cluster was deleted",
                "give another file with --kubeconfig or KUBECONFIG",
            )
        known = ", ".join(current.contexts)
        named = f'no context "{current.context}"' if current.context else "no current context"
        return Diagnosis(
            f"the kubeconfig has {named}; its contexts are: {known}",
            "name one of them with --context, or choose it with 'kubectl config use-context'",
        )
    return Diagnosis(str(error), "compare 'kubectl config view' and 'kubectl get nodes'")


def _unreachable(error: UnreachableError) -> Diagnosis:
    text = str(error)
    for pattern, what, step in _UNREACHABLE:
        if re.search(pattern, text):
            return Diagnosis(f"{what}: {text}", step)
    return Diagnosis(sentence(error), "check network and VPN, then try again")


def _is_page(text: str) -> bool:
    return re.search(r"<(!doctype|html|head|body)", text, re.IGNORECASE) is not None


def _stranger(error: Exception) -> Diagnosis:
    if _TLS_WANTED in str(error):
        return Diagnosis(
            f"the port speaks TLS, but the kubeconfig uses http: {error}",
            "write https:// in the kubeconfig",
        )
    page = "; it is a web page, as of a proxy or a login" if _is_page(str(error)) else ""
    named = [name for name in _PROXIES if os.environ.get(name)]
    proxies = f" ({', '.join(named)} set here)" if named else ""
    return Diagnosis(
        f"what answers is not the API server{page}: {error}",
        "check the server's address in the kubeconfig, and except it from the proxy with"
        f" NO_PROXY{proxies}",
    )


def _refusal(error: StatusError, current: CurrentContext) -> Diagnosis:
    if error.status == 401:
        user = current.user or "of this context"
        return Diagnosis(
            f"the API server does not accept the credentials: {error}",
            f"log in again: the credentials of user {user} are wrong or"
            " have expired (compare 'kubectl auth whoami')",
        )
    if error.status == 403:
        return _forbidden(error)
    if isinstance(error, ThrottledError):
        return Diagnosis(f"the API server is overloaded: {error}", "try again in a minute")
    if isinstance(error, ServerError):
        return Diagnosis(
            f"the API server failed: {error}",
            "try again in a minute; 'kubectl get --raw /readyz?verbose' states what is wrong",
        )
    if error.status in {301, 302, 303, 307, 308, 400}:
        return _stranger(error)
    return Diagnosis(str(error), "compare 'kubectl get nodes' with the same context")


def _forbidden(error: StatusError) -> Diagnosis:
    found = _CANNOT.search(str(error))
    what = f"a right is missing: {error}"
    if found is None:
        return Diagnosis(what, "ask an administrator for the right to do this")
    verb, resource, user = found["verb"], found["what"], found["user"]
    namespace = _NAMESPACED.search(str(error))
    scope = f"in namespace {namespace['namespace']}" if namespace else "in the whole cluster"
    if verb != "list" or resource not in _READ:
        return Diagnosis(what, f"ask an administrator for the right to {verb} {resource} {scope}")
    kind = "rolebinding" if namespace else "clusterrolebinding"
    flags = f"--clusterrole={VIEWER} --user={user}"
    flags += f" -n {namespace['namespace']}" if namespace else ""
    return Diagnosis(
        what,
        f"ask an administrator for the right to list {resource} {scope}, which ClusterRole {VIEWER}"
        f" of the chart gives: kubectl create {kind} NAME {flags}",
    )
