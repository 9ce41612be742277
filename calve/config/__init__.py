"""The resolved configuration as values. `calve.settings` makes them from calve.yaml; jobs and functions get them as JSON."""
