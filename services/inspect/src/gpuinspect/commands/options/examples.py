"""What to type first with each command; ``--help`` shows it between the description and the flags.

A line is as a shell takes it, with its meaning as a comment. The commands of ``gpushare serve
SERVER`` have theirs beside their flags.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuinspect.commands.options.kinds import KINDS

_SHORT: Final = {"deployment": "deploy", "statefulset": "sts", "daemonset": "ds"}
EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "inspect": (
        ("gpushare inspect", "every node that shares GPUs"),
        ("gpushare inspect -d gpu-a", "one node, with a line for every pod"),
        ("gpushare inspect --sort-by free -o wide", "nodes with most free memory first"),
    ),
    "gpu": (
        ("gpushare gpu", "GPUs and GPUs in use of every node"),
        ("gpushare gpu -d gpu-a", "one node, with how its GPUs are connected"),
    ),
    "top": (
        ("gpushare top node", "GPUs in use of every node"),
        ("gpushare top gpu -w", "memory in use of every GPU, until Ctrl-C"),
    ),
    "top node": (
        ("gpushare top node", "GPUs in use of every node"),
        ("gpushare top node -s -d", "nodes that share GPUs, with pods"),
        ("gpushare top node --metric gpu-a", "memory in use of each GPU of one node"),
    ),
    "top gpu": (
        ("gpushare top gpu", "memory allocated and in use of every GPU"),
        ("gpushare top gpu --sort-by used gpu-a", "one node, most memory in use first"),
        ("gpushare top gpu -w --interval 5", "refreshed every 5 seconds"),
    ),
    "watch": (
        ("gpushare watch", "the table of inspect, until Ctrl-C"),
        ("gpushare watch -d gpu-a", "one node, with a line for every pod"),
    ),
    "dashboard": (
        ("gpushare dashboard", "http://127.0.0.1:8080/, with your rights"),
        ("gpushare dashboard --port 9000 --context prod", "of another cluster"),
        ("gpushare dashboard --snapshot cluster.json", "of a file of gpushare snapshot"),
    ),
    "explain": (
        ("gpushare explain pod web-0", "a pod of the namespace of the context"),
        ("gpushare explain pod team/web-0", "a pod of the namespace team"),
        ("gpushare explain deploy/web -n team", "the pods of a Deployment, by reason"),
    ),
    "explain pod": (
        ("gpushare explain pod web-0", "a pod of the namespace of the context"),
        ("gpushare explain pod team/web-0 -o wide", "with every node, not in groups"),
        ("gpushare explain pod web-0 --policy spread", "as with another policy"),
    ),
    **{
        f"explain {kind}": (
            (f"gpushare explain {kind} web", f"a {KINDS[kind]} of the namespace of the context"),
            (f"gpushare explain {_SHORT.get(kind, kind)}/web -n team", "as kubectl names it"),
        )
        for kind in KINDS
    },
    "pending": (
        ("gpushare pending -A", "all pods that wait for GPUs, oldest first"),
        ("gpushare pending -n team -o wide", "of one namespace, with the scheduler of each"),
    ),
    "usage": (
        ("gpushare usage -A", "by namespace"),
        ("gpushare usage -A --by model --sort-by pending", "by GPU model, most requested first"),
        ("gpushare usage -n team --by label:app", "the workloads of one namespace"),
    ),
    "recommend": (
        ("gpushare recommend -A", "all workloads, most freed memory first"),
        ("gpushare recommend deploy/web -n team", "one workload"),
        ("gpushare recommend -A -o wide", "with what was measured, and why"),
        ("gpushare recommend -n team -o patch", "kubectl commands to read, then pipe to sh"),
        ("gpushare recommend -A --whatif", "GPUs that the recommended sizes would free"),
    ),
    "idle": (
        ("gpushare idle -A", "idle for an hour or longer"),
        ("gpushare idle -A --for 7d --price 2.50 -o wide", "with node and cost"),
        ("gpushare idle -n team -o name | xargs kubectl delete -n team", ""),
        ("gpushare idle -A --for 12h --dry-run --plugin-namespace gpushare", "try --evict"),
    ),
    "cost": (
        ("gpushare cost -A --prometheus http://localhost:9090", "GPU-hours of the last 7 days"),
        ("gpushare cost -A --since 4w --price 2.50", "with GPUSHARE_PROMETHEUS set"),
    ),
    "whatif": (
        ("gpushare whatif -f pod.yaml", "where its pods would be placed"),
        ("gpushare whatif -f web.yaml --replicas 20", "with another number of replicas"),
        ("gpushare whatif -f web.yaml --add-nodes 2 --like gpu-a", "with two more nodes"),
    ),
    "mix": (
        ("gpushare mix", "kinds of pods, most frequent first"),
        ("gpushare mix -o json", "with exact figures"),
    ),
    "convert": (
        ("gpushare convert -f web.yaml > web-claims.yaml", ""),
        ("gpushare convert -f web.yaml --unit MiB", "where gpu-mem counts MiB"),
    ),
    "defrag": (
        ("gpushare defrag", "moves for the first waiting pod that fits by them"),
        ("gpushare defrag --units 14", "moves that make room for 14 units on one GPU"),
        ("gpushare defrag --gpus 2", "moves that free two GPUs of one node"),
    ),
    "node-template": (
        ("gpushare node-template gpu-a", "tags of an Auto Scaling group"),
        ("gpushare node-template gpu-a --for karpenter", "a NodePool and a NodeOverlay"),
    ),
    "doctor": (
        ("gpushare doctor", "what is wrong, and what to do"),
        ("gpushare doctor -a", "also the checks that passed"),
    ),
    "verify": (
        ("gpushare verify", "one GPU of each model of each node"),
        ("gpushare verify --node gpu-a --gpu 0", "one GPU"),
        ("gpushare verify --only quick", "the first three rows, in seconds"),
    ),
    "serve": (
        ("gpushare serve list -A", "what is served"),
        ("gpushare serve get chat -n team", "endpoints, pods and GPUs of one"),
        ("gpushare serve vllm --help", "how to serve a language model"),
    ),
    "serve list": (
        ("gpushare serve list", "of the namespace of the context"),
        ("gpushare serve list -A --type vllm", "of all namespaces, of one type"),
    ),
    "serve get": (
        ("gpushare serve get chat", "of the namespace of the context"),
        ("gpushare serve get chat -n team -o yaml", "as a document"),
    ),
    "serve delete": (
        ("gpushare serve delete chat", "of the namespace of the context"),
        ("gpushare serve delete chat -n team", "of another namespace"),
    ),
    "snapshot": (
        ("gpushare snapshot cluster.json", "save the state of the cluster"),
        ("gpushare pending -A --snapshot cluster.json", "look at it later, or elsewhere"),
    ),
    "topology": (
        ("gpushare topology show gpu-a", "the links of a node"),
        ("gpushare topology plan --matrix volta.json --count 2", "the best pair of a file"),
    ),
    "topology plan": (
        ("gpushare topology plan --matrix volta.json --count 2", "the best pair"),
        ("gpushare topology plan --matrix volta.json --count 2 --free 0,2,4", "of three GPUs"),
    ),
    "topology show": (
        ("gpushare topology show gpu-a", "the links of a node"),
        ("gpushare topology show gpu-a --snapshot cluster.json", "of a saved cluster"),
    ),
    "replay": (
        ("gpushare replay --from-cluster --policy binpack", "the pods of the cluster"),
        ("gpushare replay --from-cluster --week --policy fragmentation", "arriving and ending"),
        ("gpushare replay --nodes nodes.csv --pods pods.csv --policy spread", "a trace"),
    ),
    "install-scheduler": (
        ("gpushare install-scheduler", "show the change"),
        ("gpushare install-scheduler --namespace gpushare --apply", "apply it"),
    ),
    "uninstall-scheduler": (
        ("gpushare uninstall-scheduler", "show what would be restored"),
        ("gpushare uninstall-scheduler --apply", "restore it"),
    ),
    "hold-nvidia-plugin": (
        ("gpushare hold-nvidia-plugin", "show the change"),
        ("gpushare hold-nvidia-plugin --apply", "apply it"),
    ),
    "release-nvidia-plugin": (
        ("gpushare release-nvidia-plugin", "show the change"),
        ("gpushare release-nvidia-plugin --apply", "apply it"),
    ),
    "completion": (
        ("source <(gpushare completion bash)", "in this shell"),
        ("gpushare completion zsh > ~/.gpushare.zsh", "to source from ~/.zshrc"),
        ("gpushare completion fish > ~/.config/fish/completions/gpushare.fish", ""),
    ),
    "version": (("gpushare version", "the version of this command"),),
}
"""Command lines and their meanings, by the words of the command or group."""


def lines(path: str) -> list[str]:
    """The examples of a command, with their meanings in one column where they fit a terminal."""
    examples = EXAMPLES.get(path, ())
    width = max((len(line) for line, meaning in examples if meaning), default=0)
    return [f"{line:{width}}  # {meaning}" if meaning else line for line, meaning in examples]


def with_examples(command: Any, path: str) -> Any:
    """The command, or a group and all its commands, with the examples in help."""
    for name, each in getattr(command, "commands", {}).items():
        with_examples(each, f"{path} {name}")
    if found := lines(path):
        shown = "".join(f"\n  {line}" for line in found)
        command.help = f"{command.help}\n\n\b\nExamples:{shown}"  # the mark keeps lines apart
    return command
