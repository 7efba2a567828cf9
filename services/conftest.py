"""What the services' tests have in common: a process that a service finds as in a pod.

Hundreds of tests start a service in this process, which is much larger than its own. Some things
cost more here than they tell: reading the machine's certificate authorities, though no server of
a test is vouched for by one; looking for garbage in all that pytest has loaded; and a `python3`
that is a script which looks for one.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_finish() -> None:
    """Set aside what is loaded: no test makes garbage of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate of an authority of nobody."""
    folder = tmp_path_factory.mktemp("authority")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem"))
    command = ("openssl", "req", "-x509", *key, "-days", "1", "-subj", "/CN=nobody", *files)
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder / "ca.pem"


@pytest.fixture(scope="module", autouse=True)
def one_authority(authority: Path) -> Iterator[None]:
    """The machine, here and in processes of tests, trusts this authority and no other.

    Per module: tests of other folders, which run in the same process, reach real servers.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority))
        patch.setenv("SSL_CERT_DIR", os.devnull)
        yield


@pytest.fixture(scope="module", autouse=True)
def same_python() -> Iterator[None]:
    """Stand-ins that are Python programs are run by the Python of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield
