"""The steps of a table without the job's code: what they make of decoded rows, batch by batch."""
