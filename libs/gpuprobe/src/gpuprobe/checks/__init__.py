"""What is proven of a share: the steps that containers run, and verdicts on their answers."""
