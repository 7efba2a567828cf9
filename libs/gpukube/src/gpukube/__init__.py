"""The one place that talks to a Kubernetes API server: see ARCHITECTURE.md."""
