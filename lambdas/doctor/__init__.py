"""Checks of the systems that jobs need, one row each, with the fix. Runs on this machine or, deployed, in the jobs' network."""
