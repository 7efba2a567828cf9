"""``gpushare dashboard``: the page, on this machine or in the cluster."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from gpuinspect.cli.reading import Reader, note, reading
from gpuinspect.collect import CONFIG_MAPS, FAILED_SCHEDULING, LiveReader, Wanted
from gpuinspect.snapshots import Snapshot
from gpuinspect.tokens import TokenReviewer
from gpuinspect.web.app import make_app
from gpuinspect.web.certificates import Certificates
from gpuinspect.web.feed import Feed
from gpuinspect.web.hosts import is_local
from gpuinspect.web.listening import listen


@reading
def dashboard(
    reader: Reader,
    *,
    host: Annotated[
        str, typer.Option(envvar="GPUSHARE_HOST", help="address to listen on")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="GPUSHARE_PORT", help="port to listen on", min=0, max=65535)
    ] = 8080,
    interval: Annotated[
        float, typer.Option(envvar="GPUSHARE_INTERVAL", help="seconds between reads", min=0.1)
    ] = 5.0,
    require_token: Annotated[
        bool,
        typer.Option(
            "--require-token",
            envvar="GPUSHARE_REQUIRE_TOKEN",
            help="only for people whose token may list pods of all namespaces",
        ),
    ] = False,
    unhealthy_configmaps: Annotated[
        bool,
        typer.Option(
            "--unhealthy-configmaps",
            envvar="GPUSHARE_UNHEALTHY_CONFIGMAPS",
            help="read the ConfigMaps of kube-system for GPUs that unhealthy-gpu-NODE withdraws",
        ),
    ] = False,
    tls_certificates: Annotated[
        Path | None,
        typer.Option(
            envvar="GPUSHARE_TLS_CERTIFICATES",
            metavar="FOLDER",
            help="folder with tls.crt and tls.key: serve over TLS",
        ),
    ] = None,
) -> None:
    """Serve a page that shows the cluster, live and read-only."""
    if require_token and reader.source.snapshot is not None:
        raise typer.BadParameter("--require-token asks a cluster, and --snapshot reads a file")
    reviewer = TokenReviewer(reader.source.connect()) if require_token else None
    wanted = (CONFIG_MAPS, FAILED_SCHEDULING) if unhealthy_configmaps else (FAILED_SCHEDULING,)
    feed = Feed(_reads(reader, wanted), reader.names, interval=interval)
    local = is_local(host)
    if not local and reviewer is None:
        note("whoever reaches this address sees the pods of all namespaces: see --require-token")
    shown = _certificates(tls_certificates)
    scheme = "http" if shown is None else "https"
    app = make_app(feed, reviewer, local_only=local, beside=[shown.follow] if shown else [])
    configure = partial(
        uvicorn.Config,
        host=host,
        port=port,
        ssl_context_factory=None if shown is None else lambda _config, _default: shown.context,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=2,  # event streams never end by themselves
    )
    listen(app, configure, lambda taken: note(f"{scheme}://{host}:{taken}/ - stop with Ctrl-C"))


def _certificates(folder: Path | None) -> Certificates | None:
    try:
        return None if folder is None else Certificates(folder)
    except OSError as error:
        raise typer.BadParameter(f"--tls-certificates {folder}: {error}") from error


def _reads(reader: Reader, wanted: Sequence[Wanted]) -> Callable[[], Snapshot]:
    """Reads the file again and again, or the cluster over one connection."""
    if reader.source.snapshot is not None:
        return reader.source.read
    kube = reader.source.connect()
    return LiveReader(kube, wanted)
