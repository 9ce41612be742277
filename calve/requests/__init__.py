"""Operator requests to the job, one file each. They wait in a table property."""
