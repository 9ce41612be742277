"""Schema registries, and schemas that no registry holds."""
