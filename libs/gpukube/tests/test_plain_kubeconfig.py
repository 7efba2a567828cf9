"""Kubeconfig files that need no official client are read as it reads them, without importing it."""

import base64
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpukube.errors import ConfigError
from gpukube.kubeconfig import official, plain
from gpukube.kubeconfig.finding import configuration, default_namespace
from gpukube.testing.certificates import make_certificate

pytestmark = pytest.mark.slow

HTTPS = {"server": "https://127.0.0.1:1/"}


def document(cluster: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """A kubeconfig with one context of its own, and the context and user of another."""
    return {
        "current-context": "c",
        "contexts": [
            {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
            {"name": "other", "context": {"cluster": "c", "user": "other"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [
            {"name": "other", "user": {"exec": {"command": "false"}}},
            {"name": "u", "user": user},
        ],
    }


def save(folder: Path, content: dict[str, Any]) -> Path:
    """The kubeconfig as a file, beside a certificate and its key."""
    make_certificate(folder, "localhost")
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_server_that_is_no_text_is_named(tmp_path: Path) -> None:
    """The error has the cluster and the field, in place of the words of Python."""
    path = save(tmp_path, document({"server": 5}, {"token": "t"}))
    with pytest.raises(ConfigError, match="cluster c: server is 5, not a URL"):
        configuration(path)


def seen(found: Any) -> tuple[Any, ...]:
    """Everything that a client takes from a configuration."""
    tls = found.tls
    verified = tls and tls.verify_mode is not ssl.CERT_NONE
    rules = tls and (tls.verify_mode, tls.check_hostname, verified and tls.get_ca_certs())
    return found.host, found.authorization(), found.server_name, found.proxy, rules


def encoded(path: Path) -> str:
    """A file as kubeconfigs carry it, without the newline at its end, which some tools trim."""
    return base64.b64encode(path.read_bytes().strip()).decode()


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"token": "t"}),
        ({"server": "http://127.0.0.1:1/"}, {}),
        (HTTPS, {"token": "t"}),
        (HTTPS | {"certificate-authority": "tls.crt"}, {"token": "t"}),
        (HTTPS | {"insecure-skip-tls-verify": True}, {}),
        (HTTPS | {"tls-server-name": "localhost", "proxy-url": "http://127.0.0.1:2"}, {}),
        (HTTPS | {"extensions": [{"name": "minikube"}]}, {}),
        (HTTPS, {"client-certificate": "tls.crt", "client-key": "tls.key"}),
    ],
)
def test_a_plain_file_is_read_as_the_official_client_reads_it(
    cluster: dict[str, Any], user: dict[str, Any], tmp_path: Path
) -> None:
    """Address, credentials, authority, name and proxy are the same."""
    path = save(tmp_path, document(cluster, user))
    found = plain.read(path)
    assert found is not None
    assert seen(found) == seen(official.read(path))


def test_certificates_may_stand_in_the_file(tmp_path: Path) -> None:
    """Authority, certificate and key in base64, as kubeadm and kind write them.

    They go before files.
    """
    make_certificate(tmp_path, "localhost")
    authority = {"certificate-authority-data": encoded(tmp_path / "tls.crt")}
    cluster = HTTPS | authority | {"certificate-authority": "missing.crt"}
    user = {
        "client-certificate": "missing.crt",
        "client-certificate-data": encoded(tmp_path / "tls.crt"),
        "client-key-data": encoded(tmp_path / "tls.key"),
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document(cluster, user)))
    found = plain.read(path)
    assert found is not None
    assert len(seen(found)[-1][2]) == 1
    assert seen(found) == seen(official.read(path))


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"username": "u", "password": "p"}),
        ({}, {"tokenFile": "tls.crt"}),
        ({}, {"exec": {"command": "false"}}),
        ({}, {"auth-provider": {"name": "oidc"}}),
        ({}, {"as": "somebody", "token": "t"}),
        ({"field-of-tomorrow": 1}, {}),
        ({"server": "127.0.0.1:1"}, {}),
        (HTTPS | {"certificate-authority": "missing.crt"}, {}),
        (HTTPS | {"certificate-authority-data": "eA=="}, {}),
        (HTTPS, {"client-certificate": "tls.crt"}),
    ],
)
def test_everything_else_is_left_to_the_official_client(
    cluster: dict[str, Any], user: dict[str, Any], tmp_path: Path
) -> None:
    """Credentials that expire, unknown fields, and whatever cannot be read."""
    assert plain.read(save(tmp_path, document(cluster, user))) is None


def test_several_files_and_repeated_names_are_left_to_the_official_client(tmp_path: Path) -> None:
    """The official client decides between several files, and reports an unknown context."""
    repeated = document({}, {"token": "t"})
    path = save(tmp_path, repeated)
    assert plain.read(Path(f"{path}:{path}")) is None
    assert plain.read(tmp_path / "missing") is None
    with pytest.raises(ConfigError, match="nope"):
        configuration(path, "nope")
    repeated["users"].append(repeated["users"][-1])
    assert plain.read(save(tmp_path, repeated)) is None


def test_the_users_of_other_contexts_do_not_matter(tmp_path: Path) -> None:
    """Only the entries of the chosen context decide who reads the file."""
    path = save(tmp_path, document({}, {"token": "t"}))
    assert plain.read(path, "c") is not None
    assert plain.read(path, "other") is None
    assert (default_namespace(path), default_namespace(path, "other")) == ("n", "default")


def test_a_plain_file_imports_no_official_client(tmp_path: Path) -> None:
    """Its import takes longer than all of a command: neither address nor namespace need it."""
    path = save(tmp_path, document(HTTPS | {"certificate-authority": "tls.crt"}, {"token": "t"}))
    assert default_namespace(path) == "n"
    code = (
        "import sys; from pathlib import Path; from gpukube.kubeconfig import finding\n"
        f"path = Path({str(path)!r})\n"
        "finding.configuration(path); finding.default_namespace(path)\n"
        "sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_file_in_json_imports_no_yaml(tmp_path: Path) -> None:
    """YAML takes 1.6 MiB for as long as a program runs."""
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document({}, {"token": "t"})))
    assert seen(configuration(path)) == seen(official.read(path))
    code = (
        "import sys; from pathlib import Path; from gpukube.kubeconfig import finding\n"
        f"finding.configuration(Path({str(path)!r}))\n"
        "sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_file_in_neither_form_is_left_to_the_official_client(tmp_path: Path) -> None:
    """It names what is wrong with the file."""
    path = tmp_path / "kubeconfig"
    path.write_text("{")
    assert plain.read(path) is None
    assert plain.namespace(path) is None
