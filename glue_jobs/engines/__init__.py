"""The two engines that read records and write data files: by rows (Spark) and by columns (Arrow)."""
