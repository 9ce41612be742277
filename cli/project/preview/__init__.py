"""`calve preview`: what the steps of a table make of the newest records of its topic; nothing is written."""
