"""Features of arena's serving that gpushare lacks, each with a sentence on what to use instead.

Either another system has to be in the cluster for it, or kubectl and Helm do it already.
"""

from collections.abc import Mapping
from typing import Final

ISTIO: Final = (
    "--enable-istio and --expose-service need Istio, which this does not set up: label the "
    "namespace for its sidecars yourself, and expose the Service with an Ingress or a Gateway"
)
_KSERVE: Final = (
    "needs KServe (and Knative) in the cluster, which this does not set up: give its predictor the "
    "limit aliyun.com/gpu-mem and schedulerName, or use gpushare serve custom"
)
COMMANDS: Final[Mapping[str, str]] = {
    "kserve": _KSERVE,
    "kfserving": _KSERVE,
    "seldon": (
        "needs Seldon Core in the cluster, which this does not set up: give its container the "
        "limit aliyun.com/gpu-mem and schedulerName, or use gpushare serve custom"
    ),
    "distributed": (
        "needs LeaderWorkerSet in the cluster, which this does not set up: serve on several GPUs "
        "of one node with gpushare serve vllm --gpus N"
    ),
    "traffic-router-split": (
        "needs Istio in the cluster, which this does not set up: split traffic between the "
        "Services of two releases with an Ingress or a Gateway"
    ),
    "update": (
        "is Helm's work (3.14 or newer): helm upgrade NAME helm/gpu-serving "
        "--reset-then-reuse-values --set replicas=2, or gpushare serve delete and serve again"
    ),
    "logs": "is kubectl's work: kubectl logs deployment/NAME-SERVER-serving",
    "attach": "is kubectl's work: kubectl exec -it deployment/NAME-SERVER-serving -- sh",
}
"""Arena's commands below ``serve``, by name."""
