"""The page behind a mailed link, and the download."""
