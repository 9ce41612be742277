"""The programs that are measured, each a process of its own."""
