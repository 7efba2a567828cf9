"""Nominations of pending pods: rules, and when a pod may be nominated again."""
