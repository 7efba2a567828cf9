"""Why a pod is pending, or why it has its GPU: sentences, groups, suggestions, documents."""
