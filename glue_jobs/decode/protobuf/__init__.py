from glue_jobs.process.workers import use

use()
