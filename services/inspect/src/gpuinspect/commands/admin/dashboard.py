"""``gpushare dashboard``: the dashboard, on this machine or in the cluster."""

import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Final

import structlog
import typer
import uvicorn

from gpuinspect.cluster.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.cluster.collect import (
    CLAIM_LISTS,
    CONFIG_MAPS,
    FAILED_SCHEDULING,
    ListRequest,
    LiveReader,
)
from gpuinspect.cluster.snapshots import STDIN, Snapshot
from gpuinspect.cluster.usage_histories import of_snapshot
from gpuinspect.commands.options.amounts import seconds_option
from gpuinspect.commands.options.measuring import Prometheus, from_prometheus
from gpuinspect.commands.options.reading import Reader, note, reading
from gpuinspect.queries.gpuhealth import GPU_HEALTH
from gpuinspect.queries.memory_in_use import MemoryInUse, memory_in_use
from gpuinspect.queries.sizes import read_histories, series_of_week, sizes_of
from gpuinspect.terminal import ages
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Cached, Feed, Measure
from gpuinspect.web.hosts import is_local, url_host
from gpuinspect.web.listening import listen
from gpuinspect.web.sizing import CachedSizes
from gpuinspect.web.tokens import TokenReviewer
from gpukube.server.certificates import CertificateWatcher

_OBJECT: Final = re.compile(r"[a-z0-9-]+/[a-z0-9.-]+")


@reading
def dashboard(
    reader: Reader,
    *,
    host: Annotated[
        str,
        typer.Option(
            envvar="GPUSHARE_HOST", help="address to listen on; empty: all, of IPv4 and IPv6"
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="GPUSHARE_PORT", help="port to listen on", min=0, max=65535)
    ] = 8080,
    interval: Annotated[
        float, seconds_option("seconds between reads", envvar="GPUSHARE_INTERVAL")
    ] = 5.0,
    require_token: Annotated[
        bool,
        typer.Option(
            "--require-token",
            envvar="GPUSHARE_REQUIRE_TOKEN",
            help="require a bearer token that may list pods in all namespaces",
        ),
    ] = False,
    prometheus: Prometheus = "",
    unhealthy_configmaps: Annotated[
        bool,
        typer.Option(
            "--unhealthy-configmaps",
            envvar="GPUSHARE_UNHEALTHY_CONFIGMAPS",
            help="read the ConfigMaps of kube-system for GPUs that unhealthy-gpu-NODE withdraws",
        ),
    ] = False,
    mix_history: Annotated[
        str,
        typer.Option(
            envvar="GPUSHARE_MIX_HISTORY",
            metavar="NAMESPACE/NAME",
            help="ConfigMap with the mix of pods that the extender uses, to place pods by it",
        ),
    ] = "",
    tls_certificates: Annotated[
        Path | None,
        typer.Option(
            envvar="GPUSHARE_TLS_CERTIFICATES",
            metavar="FOLDER",
            help="directory with tls.crt and tls.key; serves the dashboard over TLS",
        ),
    ] = None,
) -> None:
    """Serve the dashboard: the cluster's GPUs and pods, live and read-only."""
    if require_token and reader.source.snapshot is not None:
        raise typer.BadParameter(
            "--require-token needs a cluster; it cannot be combined with --snapshot"
        )
    if mix_history and not _OBJECT.fullmatch(mix_history):
        raise typer.BadParameter("--mix-history is NAMESPACE/NAME")
    reviewer = TokenReviewer(reader.source.connect()) if require_token else None
    maps = (CONFIG_MAPS,) if unhealthy_configmaps else ()
    maps = (*maps, _only(mix_history)) if mix_history else maps
    claims = (*CLAIM_LISTS, DEVICE_CLASSES, claim_templates(""))
    wanted = (*maps, FAILED_SCHEDULING, GPU_HEALTH, *claims)
    measure = _measure(reader, prometheus)
    reads = _reads(reader, wanted)
    feed = Feed(
        reads,
        reader.names,
        interval_seconds=interval,
        measure=measure,
        clock=_clock(reader),
        of_file=reader.source.snapshot is not None,
        sizes=_sizes(reader, prometheus),
        began=time.time(),
    )
    local = is_local(host)
    if not local and reviewer is None:
        note(
            "every client of this address can read the pods of all namespaces: see --require-token"
        )
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
    certificates = None if tls_certificates is None else _loaded(tls_certificates)
    follow = () if certificates is None else (certificates.follow,)
    scheme, address = "http" if certificates is None else "https", url_host(host)
    app = make_app(feed, reviewer, local_only=local, beside=follow)
    configure = partial(
        uvicorn.Config,
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        http="h11",  # notices that a viewer left, whatever it sent after the request for a stream
        ws="none",  # such a connection would not end for the limits of connections
        timeout_graceful_shutdown=2,  # event streams never end by themselves
    )
    listen(
        app,
        configure,
        lambda taken: note(f"{scheme}://{address}:{taken}/ - stop with Ctrl-C"),
        lambda reason: note(
            f"error: cannot listen on {address}:{port}: {reason}; choose another --port or --host"
        ),
        certificates,
    )


def _only(config_map: str) -> ListRequest:
    """A list of one ConfigMap, which its name permits."""
    namespace, _, name = config_map.partition("/")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return ListRequest("ConfigMap", path, {"fieldSelector": f"metadata.name={name}"})


def _loaded(folder: Path) -> CertificateWatcher:
    """The certificate of the listener."""
    watcher = CertificateWatcher(folder)
    try:
        watcher.load()
    except OSError as error:
        raise typer.BadParameter(f"--tls-certificates {folder}: {error}") from error
    return watcher


def _clock(reader: Reader) -> Callable[[], float]:
    """Now; of a snapshot, when its file was written, and of standard input, when it was read."""
    path, began = reader.source.snapshot, time.time()
    if path is None:
        return time.time
    if path == STDIN:
        return lambda: began

    def written() -> float:
        try:
            return path.stat().st_mtime
        except OSError:  # reading it fails too, and states why
            return began

    return written


def _measure(reader: Reader, prometheus: str) -> Measure | None:
    """Memory in use from Prometheus or the plugins; ``None`` where a snapshot is shown."""
    if prometheus:
        return lambda _snapshot: MemoryInUse(from_prometheus(prometheus))
    if reader.source.snapshot is not None:
        return None
    kube = reader.source.connect()
    return Cached(lambda snapshot: memory_in_use(kube, snapshot))


def _sizes(reader: Reader, prometheus: str) -> CachedSizes:
    """What workloads used, from Prometheus, the plugins or the histories in a snapshot."""
    if prometheus:
        seconds = reader.source.timeout_seconds
        return CachedSizes(sizes_of(partial(series_of_week, prometheus, seconds)))
    if reader.source.snapshot is not None:
        saved = partial(of_snapshot, now=ages.now().timestamp())
        return CachedSizes(sizes_of(saved, of_file=True))
    kube = reader.source.connect()
    return CachedSizes(sizes_of(partial(read_histories, kube)))


def _reads(reader: Reader, wanted: Sequence[ListRequest]) -> Callable[[], Snapshot]:
    """Reads the file again and again, standard input once, or the cluster over one connection."""
    if reader.source.snapshot == STDIN:
        return cache(reader.source.read)  # its second read has nothing
    if reader.source.snapshot is not None:
        return reader.source.read
    kube = reader.source.connect()
    return LiveReader(kube, wanted)
