"""A repository with the parts that a release is made of, each as small as it can be."""

import subprocess
from pathlib import Path
from typing import Final

EPOCH: Final = 1_790_000_000
"""The time of its commits, in seconds."""
_IDENTITY: Final = ("-c", "user.name=t", "-c", "user.email=t@example.com")
_CHART: Final = "apiVersion: v2\nname: {name}\nversion: 0.1.0\nappVersion: 0.1.0\n"
_MEMBER: Final = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
[build-system]
requires = []
build-backend = "hatchling.build"
[tool.hatch.build.targets.wheel]
packages = ["src/{name}"]
"""


def create(root: Path) -> None:
    """Write and commit charts, members and the requirement file."""
    for name in ("gpushare", "gpu-serving"):
        _write(root / "helm" / name / "Chart.yaml", _CHART.format(name=name))
        _write(root / "helm" / name / "templates" / "map.yaml", "kind: ConfigMap\n")
    for member in ("libs/gpucore", "libs/gpukube", "libs/gpuprobe", "services/inspect"):
        name = member.rpartition("/")[2]
        _write(root / member / "src" / name / "__init__.py", "")
        _write(root / member / "pyproject.toml", _MEMBER.format(name=name))
    _write(root / "requirements" / "inspect.txt", "msgspec==0.22 --hash=sha256:0\n")
    _write(root / "LICENSE", "Apache\n")
    _write(root / ".gitignore", "dist/\n__pycache__/\n")
    _git(root, "init", "--quiet")
    commit(root)


def commit(root: Path) -> None:
    """Commit everything."""
    _git(root, "add", ".")
    _git(root, *_IDENTITY, "commit", "--quiet", "--message=m")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _git(root: Path, *words: str) -> None:
    time = f"{EPOCH} +0000"
    times = {"GIT_COMMITTER_DATE": time, "GIT_AUTHOR_DATE": time}
    alone = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "-C", root, *words], check=True, env=times | alone)
