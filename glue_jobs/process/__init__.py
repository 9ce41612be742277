"""The process of a job, apart from its tables: Spark session, Java, packages, fault points."""
