"""The artefacts of a release: images, charts, bills of materials, the command, and checksums."""
