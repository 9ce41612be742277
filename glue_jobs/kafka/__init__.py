"""Kafka: clients, metadata, and a bounded fetch of record batches, the only source of both engines (ADR 38)."""

from glue_jobs.process.workers import use

use()
