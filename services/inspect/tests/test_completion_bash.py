"""TAB in bash, by the script that ``gpushare completion bash`` prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")
TAB = r"""
source <(gpushare completion bash)
COMP_LINE=$1 COMP_POINT=${#1}
_gpushare_completion gpushare
printf '%s\n' "${COMPREPLY[@]}"
"""
CONTEXTS = ("admin@kind", "arn:aws:eks:eu:1:cluster/prod", "here")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The program on PATH, and a kubeconfig with :data:`CONTEXTS`."""
    program = tmp_path / "gpushare"
    program.write_text(f"#!{sys.executable}\nfrom gpuinspect.commands.main import main\n\nmain()\n")
    program.chmod(0o755)
    config = tmp_path / "kubeconfig"
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in CONTEXTS]
    config.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "contexts": contexts}))
    return {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "KUBECONFIG": str(config),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpushare expl", ["explain"]),
        ("gpushare inspect -o y", ["yaml"]),
        ("gpushare inspect --output=y", ["yaml"]),
        ("gpushare inspect -o=", ["table", "wide", "json", "yaml", "name"]),
        ("gpushare whatif --policy=s", ["spread"]),
        ("gpushare pending --context ", list(CONTEXTS)),
        ("gpushare pending --context arn:aws:e", ["eks:eu:1:cluster/prod"]),
        ("gpushare pending --context=arn:aws:e", ["eks:eu:1:cluster/prod"]),
        ("gpushare pending --context admin@", ["@kind"]),
        ("gpushare pending --context here -o js", ["json"]),
    ],
)
def test_the_script(environment: dict[str, str], line: str, offered: list[str]) -> None:
    """Bash gets what follows the character at which it split the word: ``=``, ``:``, not ``@``."""
    assert BASH is not None
    outcome = subprocess.run(
        [BASH, "--norc", "-c", TAB, "bash", line],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (outcome.stdout.split(), outcome.stderr) == (offered, "")
