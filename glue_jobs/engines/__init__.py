"""The two engines that read records and write data files: the row engine (Spark) and the columnar engine (Arrow)."""
