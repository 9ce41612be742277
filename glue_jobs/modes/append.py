"""Without a mode: each good record is a row, or with a step that explodes several."""

from __future__ import annotations

from glue_jobs.engines.batch import Batch
from glue_jobs.iceberg.layout import clustered
from glue_jobs.iceberg.staging import Staged, stage
from glue_jobs.table.counts import Seen, observe_records, seen_records, with_rows_seen


def stage_appends(batch: Batch, stage_id: str) -> tuple[Staged, Seen]:
    """As `glue_jobs.engines.rows.Fold`."""
    table = batch.table
    observed, observation = observe_records(batch.records())
    good, several = table.row_plan.rows(observed)
    rows = clustered(good, table.main, batch.tasks)
    staged = stage(table.services.lake, table.main, rows, stage_id, count_by=table.config.count_by)
    seen = seen_records(observation)
    return staged, with_rows_seen(seen, several) if several else seen
