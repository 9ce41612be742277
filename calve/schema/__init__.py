"""Schemas as table columns: Avro, JSON Schema and Protobuf, and how a table's columns follow them. No registry, no table."""
