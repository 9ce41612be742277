from glue_jobs.process.packages import use

use()
