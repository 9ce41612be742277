"""Requests of an operator to the job, one file for each. They wait in a property of the table."""
