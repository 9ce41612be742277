"""How one table's values are read: by which schemas, into which columns. Decided on the driver before a record is read."""
