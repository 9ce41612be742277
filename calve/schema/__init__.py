"""Schemas as table columns: Avro, JSON Schema and Protobuf, and the evolution of a table's columns. No registry, no table."""
