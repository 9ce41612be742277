"""Commands that run something on this machine: the embedded stack, a job, the demo, example records."""
