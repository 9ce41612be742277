"""`calve doctor`: what calve needs of this machine and of the systems around a deployment, one row each, with the cure."""
