"""Totals of groups of records, folded on Arrow columns (ADR 50)."""
