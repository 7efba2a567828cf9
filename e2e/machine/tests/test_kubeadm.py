"""A node gets a file to join with, and kubeadm gets the configuration of the cluster."""

import base64
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import offline
from environments.controlplane import ControlPlane
from machine import environment
from machine.kubeadm import Kubeadm

VERSION = "1.37.1"
ADDRESS = "10.0.2.2"
PORT = 16443

KUBEADM = """#!/bin/sh
here=$(dirname "$0")
for word; do last=$word; done
cp "${last#--config=}" "$here/config"
echo "$@" >> "$here/calls"
"""


@pytest.fixture
def plane() -> Any:
    return SimpleNamespace(port=PORT)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake kubeadm that keeps what it is called with."""
    (tmp_path / "kubeadm").write_text(KUBEADM)
    (tmp_path / "kubeadm").chmod(0o755)
    monkeypatch.setattr(offline, "ensure_programs", lambda _: tmp_path)
    return tmp_path


def documents(programs: Path) -> dict[str, dict[str, Any]]:
    found = map(json.loads, (programs / "config").read_text().split("---"))
    return {each["kind"]: each for each in found}


def test_a_node_verifies_the_api_server_and_proves_itself_by_the_token_of_the_cluster(
    programs: Path, plane: ControlPlane
) -> None:
    kubeadm = Kubeadm(VERSION, programs, ADDRESS)
    kubeadm.make_certificates()
    token = documents(programs)["InitConfiguration"]["bootstrapTokens"][0]["token"]
    assert re.fullmatch("[a-z0-9]{6}[.][a-z0-9]{16}", token)
    join = json.loads(kubeadm.join_configuration("node", "/discovery", {"node-ip": "10.0.2.15"}))
    assert join["discovery"]["tlsBootstrapToken"] == token
    kubeadm.pki.mkdir()
    (kubeadm.pki / "ca.crt").write_bytes(b"certificate")
    (found,) = json.loads(kubeadm.discovery(plane))["clusters"]
    assert found["cluster"]["server"] == "https://10.0.2.2:16443"
    assert base64.b64decode(found["cluster"]["certificate-authority-data"]) == b"certificate"


def test_the_file_with_the_token_is_read_by_its_owner_alone(programs: Path) -> None:
    Kubeadm(VERSION, programs, ADDRESS).make_certificates()
    assert (programs / "kubeadm.yaml").stat().st_mode & 0o777 == 0o600


def test_what_users_have_by_default_is_not_configured(programs: Path, plane: ControlPlane) -> None:
    """Neither cgroups, nor swap, nor a feature gate is named: kubeadm and kubelet decide."""
    kubeadm = Kubeadm(VERSION, programs, ADDRESS)
    kubeadm.prepare(plane, programs / "admin.conf", {**environment.KUBELET, "port": 12345})
    calls = (programs / "calls").read_text()
    assert "init phase upload-config all" in calls
    assert "init phase bootstrap-token" in calls
    kubelet = documents(programs)["KubeletConfiguration"]
    # kubeadm writes the folder of certificates into it, which is that of the node.
    assert "certificatesDir" not in documents(programs)["ClusterConfiguration"]
    named = {"apiVersion", "kind", "port", "nodeStatusUpdateFrequency"}
    assert kubelet.keys() == named
