"""Pages of docs/ whose commands are run: what a reader is shown is what happens."""
