"""``gpushare dashboard``: the page, on this machine or in the cluster."""

from collections.abc import Callable
from typing import Annotated

import typer
import uvicorn

from gpuinspect.cli.reading import Reader, note, reading
from gpuinspect.collect import CONFIG_MAPS, FAILED_SCHEDULING, live
from gpuinspect.snapshots import Snapshot
from gpuinspect.tokens import TokenReviewer
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed


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
    token_review: Annotated[
        bool,
        typer.Option(
            "--token-review",
            envvar="GPUSHARE_TOKEN_REVIEW",
            help="only for people whose token may list pods of all namespaces",
        ),
    ] = False,
) -> None:
    """Serve a page that shows the cluster, live and read-only."""
    if token_review and reader.source.snapshot is not None:
        raise typer.BadParameter("--token-review asks a cluster, and --snapshot reads a file")
    reviewer = TokenReviewer(reader.source.connect()) if token_review else None
    feed = Feed(_reads(reader), reader.names, interval=interval)
    note(f"http://{host}:{port}/ - stop with Ctrl-C")
    uvicorn.run(
        make_app(feed, reviewer),
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=2,  # event streams never end by themselves
    )


def _reads(reader: Reader) -> Callable[[], Snapshot]:
    """Reads the file again and again, or the cluster over one connection."""
    if reader.source.snapshot is not None:
        return reader.source.read
    kube = reader.source.connect()
    return lambda: live(kube, (CONFIG_MAPS, FAILED_SCHEDULING), cached=True)
