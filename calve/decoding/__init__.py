"""How the values of one table are read: which schemas, into which columns. Decided on the driver, before a record is read."""
