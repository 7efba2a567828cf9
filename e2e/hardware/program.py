"""The CUDA program as one file, so that a pod of any Python image can run it from a ConfigMap."""

import io
import zipfile
from pathlib import Path
from typing import Final

import gpuprobe

NAME: Final = "client.pyz"
_HERE: Final = Path(gpuprobe.__file__).parent
_MAIN: Final = "import sys\nfrom gpuprobe.__main__ import main\nsys.exit(main())\n"
_WHEN: Final = (1980, 1, 1, 0, 0, 0)


def archive() -> bytes:
    """A zip that ``python`` runs; equal sources give equal bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for path in sorted(_HERE.glob("*.py")):
            name = str(path.relative_to(_HERE.parent))
            file.writestr(zipfile.ZipInfo(name, _WHEN), path.read_bytes())
        file.writestr(zipfile.ZipInfo("__main__.py", _WHEN), _MAIN)
    return content.getvalue()
