"""Decode the values of many records to Arrow columns, without an object per record. Both engines use it (ADRs 48 and 51)."""

from glue_jobs.process.workers import use

use()
