"""The modes of a table: its key columns, and the columns of an aggregate."""
