"""AWS: what is deployed. No runtime code, no AWS clients."""
