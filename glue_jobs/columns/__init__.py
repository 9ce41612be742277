"""Columns in Spark, in Arrow and in compiled loops: names, paths and types that all rooms above share."""
