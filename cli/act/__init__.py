"""Commands that ask a job or a function to do something."""
