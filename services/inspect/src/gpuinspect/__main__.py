"""``python -m gpuinspect``: the command where no script is installed."""

from gpuinspect.cli.main import main

main()
