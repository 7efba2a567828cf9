"""Where the API server is: a pod's account, or what a kubeconfig says."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpukube import config
from gpukube.config import TokenConfig, in_cluster, load
from gpukube.errors import ConfigError
from gpukube.kubeconfig import KubeconfigFile
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


async def test_a_pod_shows_the_token_of_its_in_cluster(tmp_path: Path) -> None:
    """Address from the environment, authority and token from where kubelet mounts them."""
    make_certificate(tmp_path, "localhost")
    (tmp_path / "tls.crt").rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    found = in_cluster(POD, tmp_path)
    assert found.host == "https://10.0.0.1:443"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert await found.authorization() == "Bearer first"
    assert in_cluster(POD | {"KUBERNETES_SERVICE_HOST": "fd::1"}, tmp_path).host == (
        "https://[fd::1]:443"
    )


async def test_a_token_that_kubelet_replaced_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time, and not while the file is missing or empty."""
    token = tmp_path / "token"
    token.write_text("first")
    one = TokenConfig("https://x", None, token)
    assert await one.authorization() == "Bearer first"
    token.write_text("second")
    assert await one.authorization() == "Bearer first"
    monkeypatch.setattr(config, "TOKEN_SECONDS", 0)
    assert await one.authorization() == "Bearer second"
    token.write_text("")
    assert await one.authorization() == "Bearer second"
    token.unlink()
    assert await one.authorization() == "Bearer second"


@pytest.mark.parametrize("missing", ["environment", "token", "ca.crt"])
def test_what_a_pod_lacks_is_named(missing: str, tmp_path: Path) -> None:
    """An operator reads what is not there."""
    (tmp_path / "token").write_text("t")
    if missing == "token":
        (tmp_path / "token").unlink()
    says = "no kubeconfig" if missing == "environment" else f"{missing}"
    with pytest.raises(ConfigError, match=says):
        in_cluster({} if missing == "environment" else POD, tmp_path)


async def test_a_kubeconfig_is_read_by_the_official_client(tmp_path: Path) -> None:
    """A token or basic credentials, here; and it has the words for what cannot be read."""
    found = await load(write(tmp_path, cluster={}, user={"token": "t"}))
    assert isinstance(found, KubeconfigFile)
    assert (found.host, await found.authorization()) == ("http://127.0.0.1:1", "Bearer t")
    found = await load(write(tmp_path, cluster={}, user={"username": "u", "password": "p"}))
    assert await found.authorization() == "Basic dTpw"
    (tmp_path / "kubeconfig").write_text("current-context: [")
    with pytest.raises(ConfigError):
        await load(tmp_path / "kubeconfig")
    with pytest.raises(ConfigError):
        await load(tmp_path / "not-there")
