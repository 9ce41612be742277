"""Operator requests that the job runs between two rounds, and changes of a table that move no offset."""
