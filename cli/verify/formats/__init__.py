"""The readers of `calve verify`: values by the rules of their formats, not by the engine's code."""
