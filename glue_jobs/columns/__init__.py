"""Columns in Spark, in Arrow and in compiled loops: names, paths and types for all other packages."""
