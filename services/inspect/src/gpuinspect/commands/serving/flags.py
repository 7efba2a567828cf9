"""The flags of ``gpushare serve SERVER``, spelled as arena spells them, older spellings included.

:func:`request` is never called by name: its signature is that of the commands, and what it returns
is what they serve.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gpuinspect.errors import FlagError
from gpuinspect.serving.flagtexts import pairs, tolerations, words
from gpuinspect.serving.request import CONTEXT_MIB, Rule, ServerKind, ServingRequest, overlaid

SCHEDULER: Final = "gpushare-scheduler"
PULL: Final = "IfNotPresent"
SHELL: Final = "sh"
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "model_name": ("modelName",),
    "model_path": ("modelPath",),
    "model_config_file": ("modelConfigFile",),
    "version_policy": ("versionPolicy",),
    "monitoring_config_file": ("monitoringConfigFile",),
    "gpumemory": ("gpuMemory",),
    "gpus": ("gpuCount",),
    "gpucore": ("gpuCore",),
    "memory_rule": ("memoryFraction", "rule"),
    "context_memory": ("memoryFraction", "contextMiB"),
    "processes": ("memoryFraction", "processes"),
    "replicas": ("replicas",),
    "image": ("image",),
    "command": ("command",),
    "shell": ("shell",),
    "port": ("port",),
    "restful_port": ("restApiPort",),
    "metrics_port": ("metrics", "port"),
    "allow_metrics": ("metrics", "enabled"),
    "image_pull_policy": ("imagePullPolicy",),
    "cpu": ("cpu",),
    "memory": ("memory",),
    "version": ("servingVersion",),
    "scheduler": ("schedulerName",),
    "runtime_class": ("runtimeClassName",),
}
"""Where the value of a flag is in those of the chart, for flags with one value."""

Texts = list[str]

Name = Annotated[
    str, typer.Option("--name", "--servingName", help="name of the model server", metavar="NAME")
]
ModelName = Annotated[
    str, typer.Option("--model-name", "--modelName", help="the model's name in requests")
]
ModelPath = Annotated[
    str,
    typer.Option(
        "--model-path",
        "--modelPath",
        "--model-repository",
        "--model-store",
        help="path of the model, in the container or in a store that the server reads",
    ),
]
ModelConfig = Annotated[
    str,
    typer.Option(
        "--model-config-file",
        "--modelConfigFile",
        help="TensorFlow Serving's model_config_file, in place of name and path",
    ),
]
VersionPolicy = Annotated[
    str,
    typer.Option(
        "--version-policy",
        "--versionPolicy",
        help="versions that TensorFlow Serving loads: latest, latest:N, specific:N or all",
    ),
]
MonitoringConfig = Annotated[
    str,
    typer.Option(
        "--monitoring-config-file",
        help="TensorFlow Serving's monitoring_config_file, in place of the chart's",
    ),
]
GpuMemory = Annotated[
    int,
    typer.Option(
        "--gpumemory",
        help="GPU memory of each replica, in units of the nodes (GiB by default)",
        min=0,
    ),
]
Gpus = Annotated[int, typer.Option("--gpus", help="exclusive GPUs of each replica", min=0)]
GpuCore = Annotated[
    int,
    typer.Option("--gpucore", help="percent of a GPU's compute of each replica", min=0, max=100),
]
RuleFlag = Annotated[
    Rule,
    typer.Option(
        "--memory-rule",
        help="share: the server and its CUDA context fit the share; quotient: arena's own fraction",
    ),
]
Context = Annotated[
    int,
    typer.Option(
        "--context-memory", help="MiB that each process needs for its CUDA context", min=0
    ),
]
Processes = Annotated[
    int, typer.Option(help="processes of a replica that use its GPU", min=1, max=48)
]
Replicas = Annotated[int, typer.Option(help="number of replicas", min=0)]
Image = Annotated[
    str, typer.Option(help="image of the server; default: the image of its maintainers")
]
Command = Annotated[
    str,
    typer.Option(
        help="shell command in place of the server's own; its fraction is in"
        " $GPUSHARE_PROCESS_MEM_FRACTION"
    ),
]
Shell = Annotated[str, typer.Option(help="shell that runs --command: sh or bash")]
Arguments = Annotated[Texts, typer.Option("--arg", help="one more argument of the server")]
ExtendCommand = Annotated[
    str, typer.Option(help="further arguments of the server as one text, split as a shell does")
]
GrpcPort = Annotated[
    int,
    typer.Option("--port", "--grpc-port", help="gRPC port; 0 for the server's", min=0, max=65535),
]
HttpPort = Annotated[
    int,
    typer.Option(
        "--restful-port",
        "--restfulPort",
        "--http-port",
        help="HTTP port; 0 for the server's",
        min=0,
        max=65535,
    ),
]
MetricsPort = Annotated[
    int,
    typer.Option(
        "--metrics-port",
        "--metric-port",
        help="port of metrics (triton, torchserve, custom); 0 for the server's",
        min=0,
        max=65535,
    ),
]
AllowMetrics = Annotated[
    bool, typer.Option(help="expose the server's metrics and annotate its pods for Prometheus")
]
Env = Annotated[
    Texts,
    typer.Option("-e", "--env", "--envs", help="variable of the server", metavar="NAME=VALUE"),
]
Label = Annotated[
    Texts, typer.Option("-l", "--label", help="label of the pods", metavar="NAME=VALUE")
]
Annotation = Annotated[
    Texts, typer.Option("-a", "--annotation", help="annotation of the pods", metavar="NAME=VALUE")
]
NodeSelector = Annotated[
    Texts, typer.Option("--selector", help="label that a node must have", metavar="NAME=VALUE")
]
Toleration = Annotated[
    Texts,
    typer.Option(
        help="taint to tolerate: KEY, KEY=VALUE:EFFECT, KEY=VALUE:EFFECT,OPERATOR or all",
        metavar="TAINT",
    ),
]
PullPolicy = Annotated[
    str,
    typer.Option("--image-pull-policy", "--imagePullPolicy", help="when kubelet pulls the image"),
]
PullSecret = Annotated[Texts, typer.Option(help="secret to pull the image with", metavar="NAME")]
Cpu = Annotated[str, typer.Option(help="CPU request of each replica")]
Memory = Annotated[str, typer.Option(help="memory limit of each replica")]
Version = Annotated[
    str, typer.Option("--version", "--servingVersion", help="version of the model server")
]
Scheduler = Annotated[str, typer.Option(help="scheduler of the pods; '' for the cluster's own")]
RuntimeClass = Annotated[str, typer.Option(help="RuntimeClass of the pods")]
Values = Annotated[
    Path | None,
    typer.Option(help="YAML file of values of the chart; flags take precedence", metavar="FILE"),
]


def request(
    server: ServerKind,
    *,
    name: Name,
    model_name: ModelName = "",
    model_path: ModelPath = "",
    model_config_file: ModelConfig = "",
    version_policy: VersionPolicy = "",
    monitoring_config_file: MonitoringConfig = "",
    gpumemory: GpuMemory = 0,
    gpus: Gpus = 0,
    gpucore: GpuCore = 0,
    memory_rule: RuleFlag = Rule.SHARE,
    context_memory: Context = CONTEXT_MIB,
    processes: Processes = 1,
    replicas: Replicas = 1,
    image: Image = "",
    command: Command = "",
    shell: Shell = SHELL,
    arguments: Arguments = [],  # noqa: B006 - typer copies it
    extend_command: ExtendCommand = "",
    port: GrpcPort = 0,
    restful_port: HttpPort = 0,
    metrics_port: MetricsPort = 0,
    allow_metrics: AllowMetrics = True,
    env: Env = [],  # noqa: B006 - as above
    label: Label = [],  # noqa: B006 - as above
    annotation: Annotation = [],  # noqa: B006 - as above
    selector: NodeSelector = [],  # noqa: B006 - as above
    toleration: Toleration = [],  # noqa: B006 - as above
    image_pull_policy: PullPolicy = PULL,
    image_pull_secret: PullSecret = [],  # noqa: B006 - as above
    cpu: Cpu = "",
    memory: Memory = "",
    version: Version = "",
    scheduler: Scheduler = SCHEDULER,
    runtime_class: RuntimeClass = "",
    values: Values = None,
) -> ServingRequest:
    """The request that the flags describe.

    Raises:
        FlagError: a text or a file cannot be read.
    """
    flags = locals()
    given: dict[str, Any] = {
        "extraArgs": [*arguments, *words("--extend-command", extend_command)],
        "envs": pairs("--env", env),
        "labels": pairs("--label", label),
        "annotations": pairs("--annotation", annotation),
        "nodeSelector": pairs("--selector", selector),
        "tolerations": tolerations("--toleration", toleration),
        "imagePullSecrets": [{"name": secret} for secret in image_pull_secret],
    }
    given = {key: value for key, value in given.items() if value}
    for flag, place in PLACES.items():
        value = flags[flag]
        if value != default_of(flag):
            for key in reversed(place):
                value = {key: value}
            given = overlaid(given, value)
    return ServingRequest(server, name, overlaid(_file(values), given))


def default_of(flag: str) -> Any:
    """The value of a flag that is not on the command line: the chart's own."""
    return inspect.signature(request).parameters[flag].default


def _file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml  # noqa: PLC0415 - as long to import as all the rest, and few name a file

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FlagError(f"--values {path}: {error}") from error
    if not isinstance(found, dict):
        raise FlagError(f"--values {path}: not a file of names and values")
    return found
