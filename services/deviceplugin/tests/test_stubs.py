"""The committed messages are those of the committed protocol files."""

import importlib.util
from pathlib import Path

HERE = Path(__file__).parent


def test_the_messages_are_what_the_generator_makes(tmp_path: Path) -> None:
    """A changed protocol file without new messages, or edited messages, fails here."""
    spec = importlib.util.spec_from_file_location("stubs", HERE.parent / "stubs.py")
    assert spec is not None
    assert spec.loader is not None
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    stubs.generate(tmp_path)
    for name in stubs.PROTOCOLS:
        for ending in stubs.MADE:
            path = f"gpudeviceplugin/proto/{name}{ending}"
            assert (tmp_path / path).read_text() == (stubs.SOURCE / path).read_text(), path
