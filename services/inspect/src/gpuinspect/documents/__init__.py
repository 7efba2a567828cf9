"""JSON and YAML output, with one schema."""
