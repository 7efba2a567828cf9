"""Kueue from its Go module: the manager, and the manifests that an installation needs."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from host import cachedir
from host.progress import step
from offline import goprograms, gotoolchain

_PROJECT = "sigs.k8s.io/kueue"
_MODULE = goprograms.MODULES / "kueue"
_CRDS = "config/components/crd/bases"
_WEBHOOKS = "config/components/webhook/manifests.yaml"


@dataclass(frozen=True)
class KueueFiles:
    """The compiled manager, the folder of its CustomResourceDefinitions, and its webhooks."""

    manager: Path
    definitions: Path
    webhooks: Path


def ensure() -> KueueFiles:
    """The files, compiled if needed; minutes the first time.

    Raises:
        SetupError: the module cannot be had, or does not compile here.
    """
    key = cachedir.content_key([gotoolchain.VERSION], goprograms.inputs("kueue"))
    folder = cachedir.entry("kueue", key, _fill)
    return KueueFiles(folder / "kueue", folder / "definitions", folder / "webhooks.yaml")


def _fill(folder: Path) -> None:
    with step("compile Kueue (minutes)"):
        goprograms.compile_module(_MODULE, into=folder)
    source = goprograms.source(_MODULE, _PROJECT)
    shutil.copytree(source / _CRDS, folder / "definitions", copy_function=shutil.copyfile)
    shutil.copyfile(source / _WEBHOOKS, folder / "webhooks.yaml")
