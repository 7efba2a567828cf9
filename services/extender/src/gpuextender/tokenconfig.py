"""A kubeconfig that says where the API server is and which token to show, and nothing more.

Read narrowly: a key that is not known here makes it a matter for the official client.
"""

import ssl
from pathlib import Path

import msgspec
import yaml


class _Cluster(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: bytes = b""
    insecure_skip_tls_verify: bool = False


class _User(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    token: str = ""
    token_file: str = ""


class _Context(msgspec.Struct):
    cluster: str
    user: str


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: dict[str, object]


class _NamedUser(msgspec.Struct):
    name: str
    user: dict[str, object]


class _Document(msgspec.Struct, rename="kebab"):
    current_context: str
    contexts: list[_NamedContext]
    clusters: list[_NamedCluster]
    users: list[_NamedUser]


def read_plain(path: Path) -> tuple[str, ssl.SSLContext | None, str | Path] | None:
    """Host, TLS and token (or its file) of the current context; ``None`` where there is more to it.

    Nothing is raised: the official client has the words for what is wrong.
    """
    try:
        document = msgspec.convert(yaml.safe_load(path.read_bytes()), _Document)
        cluster, user = _chosen(document)
        token = user.token or (path.parent / user.token_file if user.token_file else "")
        return cluster.server, _tls(cluster, path.parent), token
    except (OSError, StopIteration, ValueError, yaml.YAMLError, msgspec.MsgspecError):
        return None


def _chosen(document: _Document) -> tuple[_Cluster, _User]:
    name = document.current_context
    context = next(one.context for one in document.contexts if one.name == name)
    cluster = next(one.cluster for one in document.clusters if one.name == context.cluster)
    user = next(one.user for one in document.users if one.name == context.user)
    return msgspec.convert(cluster, _Cluster), msgspec.convert(user, _User)


def _tls(cluster: _Cluster, folder: Path) -> ssl.SSLContext | None:
    if not cluster.server.startswith("https://"):
        return None
    file = cluster.certificate_authority
    context = ssl.create_default_context(
        cafile=folder / file if file else None,
        cadata=cluster.certificate_authority_data.decode() or None,
    )
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
