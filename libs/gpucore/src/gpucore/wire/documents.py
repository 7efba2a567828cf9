"""The version of the JSON documents that commands and APIs of this project answer with."""

from typing import Final

API_VERSION: Final = "gpushare/v1"
"""The contract: within a version fields are added and nothing else."""
