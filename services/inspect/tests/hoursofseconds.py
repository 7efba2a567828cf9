"""The command with hours of one second: ``python hoursofseconds.py idle --for 1h``.

For cases on a cluster, where the clock of the device plugin cannot be moved.
"""

from gpuinspect.commands.main import main
from gpuinspect.commands.options import amounts

if __name__ == "__main__":
    amounts.HOURS["h"] = 1 / 3600  # type: ignore[assignment]
    main()
