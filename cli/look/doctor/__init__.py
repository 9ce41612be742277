"""`calve doctor`: what calve needs of this machine and of a deployment's systems, one row each, with the fix."""
