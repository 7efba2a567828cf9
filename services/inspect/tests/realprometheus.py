"""A real Prometheus on the loopback, over blocks that promtool made of recorded samples."""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

import offline
from environments.processes import ChildProcess, free_port
from host.testing.obtaining import obtained
from host.waiting import until

SECONDS = 60.0


class Series(msgspec.Struct, frozen=True):
    """Samples of one series.

    Attributes:
        samples: pairs of Unix time and value.
    """

    metric: str
    labels: Mapping[str, str]
    samples: Sequence[tuple[float, float]]


@contextmanager
def prometheus(folder: Path, series: Iterable[Series]) -> Iterator[str]:
    """The URL of a Prometheus that has these series."""
    programs = obtained(offline.ensure_prometheus)
    text, data, configuration = folder / "series.txt", folder / "data", folder / "prometheus.yaml"
    text.write_text(openmetrics(series))
    configuration.write_text("{}")
    words = ("tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data)
    subprocess.run([programs.promtool, *words], check=True, capture_output=True, timeout=SECONDS)
    address = f"127.0.0.1:{free_port()}"
    server = ChildProcess(
        "prometheus",
        [
            programs.prometheus,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address={address}",
        ],
        folder=folder,
    )
    try:
        until("Prometheus is ready", lambda: _ready(server, address), seconds=SECONDS)
        yield f"http://{address}"
    finally:
        server.stop()


def openmetrics(series: Iterable[Series]) -> str:
    """The text that promtool reads; series of one metric stand together."""
    lines = []
    for each in sorted(series, key=lambda one: one.metric):
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(each.labels.items()))
        lines += [f"{each.metric}{{{labels}}} {value:.0f} {at:.3f}" for at, value in each.samples]
    return "\n".join([*lines, "# EOF", ""])


def _ready(server: ChildProcess, address: str) -> bool:
    server.demand_alive()
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def now() -> float:
    """Unix time of this whole second."""
    return float(int(time.time()))
