"""The extender on a control plane as large as one machine carries, and its page."""
