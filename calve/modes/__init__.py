"""The modes of a table: which columns are its keys, and which columns an aggregate has."""
