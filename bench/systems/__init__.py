"""The systems that are measured, each under the name by which `make bench SYSTEM=...` runs it alone."""
