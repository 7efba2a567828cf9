"""What is taken out of the images is never imported by the services."""

import subprocess
import sys
from pathlib import Path

import pytest

from images.runtime import prune

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""
WITHOUT_GENERATED_CODE = """\
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        package, _, leaf = name.rpartition(".")
        whole = any((name + ".").startswith(each.replace("/", ".") + ".") for each in {unused!r})
        if whole or package.replace(".", "/") in {generated!r} and leaf:
            raise ImportError(name + " is not in the image")

sys.meta_path.insert(0, Refuse())
package = importlib.import_module({package!r})
for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
{use}
"""
USE = """\
import asyncio, pathlib
import gpukube.kubeconfig.credentials  # of the official client, for all but plain kubeconfigs
from gpukube.client import HttpKubeClient

async def use():
    async with await HttpKubeClient.connect(pathlib.Path({path!r}), user_agent="test") as client:
        assert await client._credentials() == [("Authorization", "Bearer t")]

asyncio.run(use())
"""


def test_only_generated_code_goes(tmp_path: Path) -> None:
    """Modules of the named packages go, what loads them and everything else stays."""
    packages = tmp_path / "python3.11" / "site-packages"
    names = ["kubernetes/client/models/v1_pod.py", "kubernetes/client/models/__init__.py"]
    names += [
        "kubernetes/aio/client/rest.py",
        "kubernetes/client/api_client.py",
        "certifi/tests/test_x.py",
        "certifi/core.py",
    ]
    for name in names:
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("")
    prune.prune(tmp_path)
    left = sorted(str(path.relative_to(packages)) for path in packages.rglob("*.py"))
    assert left == ["certifi/core.py", "kubernetes/client/api_client.py", names[1]]


@pytest.mark.slow
@pytest.mark.timeout(300)  # some 500 modules are loaded
@pytest.mark.parametrize("package", ["gpuextender", "gpudeviceplugin", "gpuinspect"])
def test_services_do_without_it(package: str, tmp_path: Path) -> None:
    """All modules import and the client can be set up where generated code is refused."""
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    script = WITHOUT_GENERATED_CODE.format(
        generated=set(prune.GENERATED),
        unused=prune.UNUSED,
        package=package,
        use=USE.format(path=str(file)),
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
