"""Where a daemon has its files, from the variables that the real one reads."""

import os
from pathlib import Path
from typing import NamedTuple

DEFAULT_PIPE = "/tmp/nvidia-mps"
DEFAULT_LOG = "/var/log/nvidia-mps"


class MpsDirectories(NamedTuple):
    """The directories of one daemon."""

    pipe: Path
    log: Path

    @classmethod
    def of_environment(cls) -> "MpsDirectories":
        """As CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY say."""
        return cls(
            Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", DEFAULT_PIPE)),
            Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", DEFAULT_LOG)),
        )

    @property
    def control(self) -> Path:
        """The socket of clients and commands, of any user."""
        return self.pipe / "control"

    @property
    def privileged(self) -> Path:
        """The socket of commands, of the daemon's own user."""
        return self.pipe / "control_privileged"

    @property
    def lock(self) -> Path:
        """Locked as long as the daemon lives."""
        return self.pipe / "control_lock"

    @property
    def fifo(self) -> Path:
        """Through which servers write the log."""
        return self.pipe / "log"

    @property
    def pid(self) -> Path:
        """A file with the daemon's process id, beside the pipes: for tests, not NVIDIA's."""
        return self.pipe.parent / "standin.pid"
