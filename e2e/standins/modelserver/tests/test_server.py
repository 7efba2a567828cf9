"""The stand-in notices a wrong fraction, which is what the cases have it for, and answers."""

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SERVER = Path(__file__).parents[1] / "server.py"
SHARE = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_MEM_DEV": "15"}
SECONDS = 60


def command(model: Path, fraction: str) -> list[str]:
    """The command line of TensorFlow Serving; any free port."""
    flags = {
        "port": "8500",
        "rest_api_port": "0",
        "model_name": "half",
        "model_base_path": str(model),
        "per_process_gpu_memory_fraction": fraction,
    }
    return [sys.executable, str(SERVER), *(f"--{name}={text}" for name, text in flags.items())]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of a stand-in that serves on a share of 3 in 15."""
    with subprocess.Popen(
        command(tmp_path, "0.150878"), env=os.environ | SHARE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"on port (\d+)", process.stdout.readline())
        assert found is not None
        yield int(found[1])
        process.terminate()
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("fraction", ["0", "0.0", "-0.1", "0.21", "1.0"])
def test_a_fraction_that_is_not_of_the_share_is_refused(tmp_path: Path, fraction: str) -> None:
    """No limit at all, or more than the share: it ends with a sentence and serves nothing."""
    done = subprocess.run(
        command(tmp_path, fraction),
        env=os.environ | SHARE,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "is not of a share of 3 in 15 units" in done.stderr


def test_it_answers_as_the_real_one(port: int) -> None:
    """Status, prediction and metrics; a request in chunks is read whole; ends on request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)

    def ask(method: str, path: str, body: bytes | Iterator[bytes] | None = None) -> str:
        connection.request(method, path, body)
        return connection.getresponse().read().decode()

    status = json.loads(ask("GET", "/v1/models/half"))["model_version_status"]
    assert [version["state"] for version in status] == ["AVAILABLE"]
    payload = b'{"instances": [1.0, 5.0]}'
    whole = ask("POST", "/v1/models/half:predict", payload)
    chunks = ask("POST", "/v1/models/half:predict", iter([payload[:9], payload[9:]]))
    assert json.loads(whole) == json.loads(chunks) == {"predictions": [2.5, 4.5]}
    assert ask("GET", "/monitoring/prometheus/metrics") == "standin_memory_fraction 0.150878\n"
    assert "error" in json.loads(ask("POST", "/v1/models/other:predict", payload))
