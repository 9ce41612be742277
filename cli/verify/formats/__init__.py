"""Readers of `calve verify`: values by the rules of their formats, without the job's code."""
