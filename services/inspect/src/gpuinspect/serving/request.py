"""A model to serve, as a value: its validation, and the chart values it becomes.

The chart refuses the same combinations; these errors name the flags instead, before Helm is
started.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

BOTH: Final = (
    "gpucount and gpumemory should not be used at the same time.You can only choose one mode"
)
"""Arena's own sentence; scripts look for it."""

NAME_LENGTH: Final = 43
"""Characters of a name, so that ``<name>-tensorflow-serving`` is a name of Kubernetes."""
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values, mapping by mapping, as Helm lays them."""
    return {**below, **{key: _laid(below.get(key), value) for key, value in above.items()}}


def _laid(below: Any, above: Any) -> Any:
    both = isinstance(below, Mapping) and isinstance(above, Mapping)
    return overlaid(below, above) if both else above


def _removed(values: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """The values without the one at this path."""
    key, *rest = path
    if rest and isinstance(values.get(key), Mapping):
        return {**values, key: _removed(values[key], rest)}
    return {name: value for name, value in values.items() if rest or name != key}


CONTEXT_MIB: Final = 600
"""Head-room for one CUDA context. TensorFlow Serving used 517 to 527 MiB beyond its fraction on a
V100; the rest is for the larger kernels of newer GPUs and libraries."""


class ServerKind(StrEnum):
    """Kinds of model servers; the names of the chart."""

    TENSORFLOW = "tensorflow"
    TRITON = "triton"
    TORCHSERVE = "torchserve"
    VLLM = "vllm"
    CUSTOM = "custom"


class Rule(StrEnum):
    """The rule that turns a share into a memory fraction: ``helm/gpu-serving/files/start.sh``."""

    SHARE = "share"
    QUOTIENT = "quotient"


class ServingRequest(NamedTuple):
    """One model to serve.

    Attributes:
        name: of the release and what arena calls the serving name.
        given: values of the chart, by their names there, from flags and a file; what is as the
            chart has it by itself is left out.
    """

    server: ServerKind
    name: str
    given: Mapping[str, Any]

    def over(self, values: Mapping[str, Any]) -> "ServingRequest":
        """The same with further values of the chart above those that it has."""
        return self._replace(given=overlaid(self.given, values))

    def without(self, path: Sequence[str]) -> "ServingRequest":
        """The same without one of the values; ``path`` is its keys from the top."""
        return self._replace(given=_removed(self.given, path))

    def refusal(self) -> str:
        """A sentence with the flag that is wrong and why; empty for a valid request."""
        custom = self.server is ServerKind.CUSTOM
        return self._gpus() or self._names() or (self._custom() if custom else self._model())

    def values(self) -> dict[str, Any]:
        """The values of the chart."""
        return {**self.given, "server": str(self.server), "servingName": self.name}

    def _gpus(self) -> str:
        memory, count = self.given.get("gpuMemory"), self.given.get("gpuCount")
        if memory and count:
            return BOTH
        if self.given.get("backend") and not count:
            return (
                "--backend needs --gpus: the backend takes its part of a GPU's memory from the "
                "model repository, so a share could not be enforced"
            )
        if not (memory or count or self.given.get("devices")):
            return "give --gpumemory for a share of a GPU, or --gpus for exclusive GPUs"
        if self.given.get("gpuCore") and count:
            return "--gpucore is a part of a shared GPU: give it with --gpumemory, not with --gpus"
        return ""

    def _names(self) -> str:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_LENGTH:
            return (
                f"--name is '{self.name}': use lower-case letters, digits and -, from a letter to "
                f"a letter or digit, at most {NAME_LENGTH}"
            )
        return ""

    def _custom(self) -> str:
        if not self.given.get("image"):
            return "--image is missing: a custom server has no default image"
        if self.given.get("gpuMemory") and not self.given.get("command"):
            return "--command is missing: only a server started by it gets its fraction"
        return ""

    def _model(self) -> str:
        if self.given.get("command") or self.given.get("modelConfigFile"):
            return ""
        if not self.given.get("modelPath"):
            return f"--model-path is missing: {self.server} needs the path of its model"
        if not self.given.get("modelName") and self.server is not ServerKind.TRITON:
            return f"--model-name is missing: {self.server} serves its model under a name"
        return ""
