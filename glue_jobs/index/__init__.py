"""Where the rows of a table lie, by key: a cache in the driver, which the table alone corrects (ADR 45)."""

from glue_jobs.process.workers import use

use()
