"""Where the API server is: a pod's account, or what a kubeconfig specifies."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpukube import config
from gpukube.config import TokenConfig, in_cluster
from gpukube.errors import ConfigError, UnreachableError
from gpukube.kubeconfig import finding, official
from gpukube.kubeconfig.finding import (
    configuration,
    default_namespace,
    found_by_kubectl,
    load,
)
from gpukube.kubeconfig.official import KubeconfigFile
from gpukube.testing.certificates import make_certificate

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def write(folder: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """A kubeconfig in YAML, as people have it."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "other", "user": {"exec": {}}}, {"name": "u", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_pod_shows_the_token_of_its_in_cluster(tmp_path: Path) -> None:
    """Address from the environment, authority and token from where kubelet mounts them."""
    make_certificate(tmp_path, "localhost")
    (tmp_path / "tls.crt").rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    found = in_cluster(POD, tmp_path)
    assert found.host == "https://10.0.0.1:443"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.authorization() == "Bearer first"
    assert in_cluster(POD | {"KUBERNETES_SERVICE_HOST": "fd::1"}, tmp_path).host == (
        "https://[fd::1]:443"
    )


def test_a_token_that_kubelet_replaced_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time, and not while the file is missing or empty."""
    token = tmp_path / "token"
    token.write_text("first")
    one = TokenConfig("https://x", None, token)
    assert one.authorization() == "Bearer first"
    token.write_text("second")
    assert one.authorization() == "Bearer first"
    monkeypatch.setattr(config, "TOKEN_SECONDS", 0)
    assert one.authorization() == "Bearer second"
    token.write_text("")
    assert one.authorization() == "Bearer second"
    token.unlink()
    assert one.authorization() == "Bearer second"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"one\ntwo", "tökén".encode()])
def test_a_token_file_that_holds_no_token_is_an_error_that_names_it(
    tmp_path: Path, content: bytes
) -> None:
    """As of a damaged volume; the request ends as one without a reply, and is tried again."""
    token = tmp_path / "token"
    token.write_bytes(content)
    one = TokenConfig("https://x", None, token)
    with pytest.raises(UnreachableError, match=f"{token}: an HTTP header cannot carry the token"):
        one.authorization()
    token.write_text("right")
    assert one.authorization() == "Bearer right"


def test_a_ca_bundle_that_kubelet_replaced_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the authority of the cluster is renewed; a bundle that is no PEM changes nothing."""
    monkeypatch.setattr(config, "TOKEN_SECONDS", 0)
    (tmp_path / "token").write_text("t")
    for name in ("old", "new"):
        make_certificate(tmp_path / name, name)
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes((tmp_path / "old" / "tls.crt").read_bytes())
    found = in_cluster(POD, tmp_path)
    assert found.tls is not None
    assert found.authorization() == "Bearer t"
    for content in (b"", b"no PEM"):
        bundle.write_bytes(content)
        assert found.authorization() == "Bearer t"
    assert found.tls.cert_store_stats()["x509"] == 1
    bundle.write_bytes((tmp_path / "new" / "tls.crt").read_bytes())
    assert found.authorization() == "Bearer t"
    assert found.tls.cert_store_stats()["x509"] == 2


@pytest.mark.parametrize("missing", ["environment", "port", "token", "ca.crt"])
def test_what_a_pod_lacks_is_named(missing: str, tmp_path: Path) -> None:
    """An operator reads what is not there."""
    (tmp_path / "token").write_text("t")
    if missing == "token":
        (tmp_path / "token").unlink()
    environ = {"environment": {}, "port": POD | {"KUBERNETES_SERVICE_PORT": ""}}.get(missing, POD)
    sentence = missing if environ is POD else "no kubeconfig"
    with pytest.raises(ConfigError, match=sentence):
        in_cluster(environ, tmp_path)


async def test_a_kubeconfig_is_read_by_the_official_client(tmp_path: Path) -> None:
    """Basic credentials, here; and it has the words for what cannot be read."""
    found = await load(write(tmp_path, cluster={}, user={"username": "u", "password": "p"}))
    assert isinstance(found, KubeconfigFile)
    assert found.authorization() == "Basic dTpw"
    (tmp_path / "kubeconfig").write_text("current-context: [")
    with pytest.raises(ConfigError):
        await load(tmp_path / "kubeconfig")
    with pytest.raises(ConfigError):
        await load(tmp_path / "not-there")


async def test_a_context_names_cluster_and_user(tmp_path: Path) -> None:
    """An empty name is the current context; an unknown one is an error that names it."""
    path = write(tmp_path, cluster={}, user={"token": "t"})
    document = yaml.safe_load(path.read_text())
    document["contexts"].append({"name": "o", "context": {"cluster": "c", "user": "v"}})
    document["users"].append({"name": "v", "user": {"token": "other"}})
    path.write_text(yaml.safe_dump(document))
    assert (await load(path)).authorization() == "Bearer t"
    assert configuration(path, "o").authorization() == "Bearer other"
    with pytest.raises(ConfigError, match="none"):
        configuration(path, "none")


async def test_a_certificate_may_have_another_name_than_the_host(tmp_path: Path) -> None:
    """The authority is checked against the ``tls-server-name`` of the cluster, or not at all."""
    make_certificate(tmp_path, "localhost")
    authority = str(tmp_path / "tls.crt")
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": authority}
    found = await load(write(tmp_path, cluster=cluster | {"tls-server-name": "n"}, user={}))
    assert (found.server_name, found.authorization()) == ("n", "")
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    skipping = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    found = await load(write(tmp_path, cluster=skipping, user={}))
    assert found.tls is not None
    assert (found.tls.verify_mode, found.tls.check_hostname) == (ssl.CERT_NONE, False)


async def test_a_client_certificate_is_part_of_tls(tmp_path: Path) -> None:
    """A pair that cannot be read is an error at the start, not at the first request."""
    make_certificate(tmp_path, "localhost")
    user = {"client-certificate": str(tmp_path / "tls.crt")}
    cluster = {"server": "https://127.0.0.1:1"}
    pair = user | {"client-key": str(tmp_path / "tls.key")}
    assert (await load(write(tmp_path, cluster=cluster, user=pair))).tls is not None
    (tmp_path / "tls.key").write_text("no key")
    with pytest.raises(ConfigError, match="no usable kubeconfig"):
        await load(write(tmp_path, cluster=cluster, user=pair))


async def test_a_credential_plugin_renews_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that expires soon is replaced by another run of the plugin."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo run >> {tmp_path}/runs\n"
        "cat <<EOF\n"
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status":'
        f' {{"token": "t$(wc -l < {tmp_path}/runs | tr -d " ")",'
        ' "expirationTimestamp": "2001-01-01T00:00:00Z"}}\n'
        "EOF\n"
    )
    plugin.chmod(0o755)
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    now = 100.0
    monkeypatch.setattr(official, "monotonic", lambda: now)
    found = await load(write(tmp_path, cluster={}, user={"exec": run}))
    first = found.authorization()
    assert (found.authorization(), found.due) == (first, False)
    now += config.TOKEN_SECONDS
    assert found.due
    second = found.authorization()
    assert second != first
    assert (found.authorization(), found.due) == (second, False)


@pytest.mark.parametrize("inside", [True, False])
def test_the_kubeconfig_is_the_one_that_kubectl_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    """A flag goes first, then KUBECONFIG, then the file in the home, then the pod's account."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if inside:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    home = tmp_path / ".kube" / "config"
    assert found_by_kubectl(None) == (None if inside else home)
    assert found_by_kubectl(None, "a-context") == home
    home.parent.mkdir()
    home.touch()
    assert found_by_kubectl(None) == home
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    assert found_by_kubectl(None) == Path("/a:/b")
    assert found_by_kubectl(Path("/c")) == Path("/c")


def test_the_namespace_is_that_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a kubeconfig it is the namespace of the pod, and outside of one ``default``."""
    monkeypatch.setattr(finding, "MOUNTED", tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = write(tmp_path, cluster={}, user={})
    (tmp_path / "namespace").write_text("of-the-pod\n")
    assert default_namespace(path) == "n"
    assert default_namespace(tmp_path / "none") == "default"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert default_namespace(tmp_path / "none") == "of-the-pod"


def test_a_context_without_a_namespace_is_of_the_namespace_default(tmp_path: Path) -> None:
    """In one file, and in several, which the official client reads."""
    path = write(tmp_path, cluster={}, user={})
    document = yaml.safe_load(path.read_text())
    del document["contexts"][0]["context"]["namespace"]
    path.write_text(yaml.safe_dump(document))
    assert default_namespace(path) == "default"
    assert default_namespace(Path(f"{path}:{tmp_path}/missing")) == "default"


async def test_a_proxy_of_the_environment_is_none_of_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exceptions are for that of the environment only, so the two must not be mixed up."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    password = {"username": "u", "password": "p"}
    assert (await load(write(tmp_path, cluster={}, user=password))).proxy is None
    named = {"proxy-url": "http://other:3128"}
    assert (await load(write(tmp_path, cluster=named, user=password))).proxy == "http://other:3128"


async def test_several_kubeconfigs_are_one(tmp_path: Path) -> None:
    """KUBECONFIG may name files with colons between them; the first current context wins."""
    first = write(tmp_path, cluster={}, user={"token": "t"}).rename(tmp_path / "first")
    document = yaml.safe_load(first.read_text())
    document["contexts"].append({"name": "o", "context": {"cluster": "c", "user": "v"}})
    first.write_text(yaml.safe_dump(document))
    second = tmp_path / "second"
    second.write_text(yaml.safe_dump({"users": [{"name": "v", "user": {"token": "other"}}]}))
    both = Path(f"{first}:{second}")
    assert (await load(both)).authorization() == "Bearer t"
    assert configuration(both, "o").authorization() == "Bearer other"
    for current in ("o", ""):
        document = {"current-context": current, "users": [{"name": "u", "user": {"token": "no"}}]}
        second.write_text(yaml.safe_dump(document))
        assert (await load(both)).authorization() == "Bearer t"
        assert default_namespace(both) == "n"
    none = tmp_path / "none"
    none.write_text("")
    assert (await load(Path(f"{none}:{tmp_path}/missing:{first}"))).authorization() == "Bearer t"


async def test_a_context_has_its_namespace_where_no_context_is_current(tmp_path: Path) -> None:
    """Several files without a current context do not lead to the namespace ``default``."""
    first = write(tmp_path, cluster={}, user={"token": "t"}).rename(tmp_path / "first")
    document = yaml.safe_load(first.read_text())
    del document["current-context"]
    first.write_text(yaml.safe_dump(document))
    second = tmp_path / "second"
    context = {"cluster": "c", "user": "u", "namespace": "other"}
    second.write_text(yaml.safe_dump({"contexts": [{"name": "o", "context": context}]}))
    both = Path(f"{first}:{second}")
    assert default_namespace(both, "o") == "other"
    assert configuration(both, "o").authorization() == "Bearer t"
    with pytest.raises(ConfigError, match="no current-context"):
        await load(both)


async def test_no_error_of_a_kubeconfig_quotes_its_users(tmp_path: Path) -> None:
    """A field that is missing is named without the values beside it."""
    path = write(tmp_path, cluster={}, user={})
    document = yaml.safe_load(path.read_text())
    document["users"][1] = {"name": "u", "token": "secret"}
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="users/u") as failed:
        await load(path)
    assert "secret" not in str(failed.value)
