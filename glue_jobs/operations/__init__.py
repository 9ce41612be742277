"""Requests of an operator, which the job runs between two rounds, and changes of a table that move no offset."""
