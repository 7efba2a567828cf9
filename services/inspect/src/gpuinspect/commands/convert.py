"""``gpushare convert``: manifests with shares as manifests with ResourceClaims; creates nothing."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from gpucore.claims.convert import ClaimRequests
from gpucore.units import MemoryUnit, UnitError
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpuinspect.commands.options.reading import Domain, fail, note
from gpuinspect.queries.converting import ConvertedManifest, convert_manifest

STDIN = Path("-")


class _Plain(yaml.SafeDumper):
    """Writes equal parts of a manifest twice, in place of anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's
        """Never use one."""
        return True


def convert(
    *,
    filename: Annotated[
        Path,
        typer.Option("-f", "--filename", help="manifest; - is standard input", metavar="FILE"),
    ],
    unit: Annotated[
        str, typer.Option(help="size of a unit of GPU memory in the manifest: GiB, MiB or 256MiB")
    ] = "GiB",
    device_class: Annotated[
        str, typer.Option(help="DeviceClass of shares", metavar="NAME")
    ] = "gpushare",
    resource_domain: Domain = "aliyun.com",
) -> None:
    """Print a manifest with ResourceClaims in place of shares, and the templates that it needs.

    The webhook does the same in namespaces with the label gpushare/api=claims.
    """
    try:
        how = ClaimRequests(Names(resource_domain), MemoryUnit.parse(unit), device_class)
    except UnitError as error:
        raise typer.BadParameter(str(error)) from error
    found = _read(filename, how)
    sys.stdout.write(yaml.dump_all(found.documents, Dumper=_Plain, sort_keys=False))
    for obstacle in found.obstacles:
        note(f"note: not converted: {obstacle}")
    if not found.converted:
        fail(f"{filename} contains no pod whose share can be converted")


def _read(path: Path, how: ClaimRequests) -> ConvertedManifest:
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
        return convert_manifest(yaml.safe_load_all(text), how)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")
    except (yaml.YAMLError, WireError, UnicodeDecodeError, RecursionError) as error:
        fail(f"{path} is not a manifest: {error}")
