"""What a process of a job needs before it knows a table: its Spark session, Java, packages, fault points."""
