"""What jobs need of the systems around them, one row each, with the cure. From here or, deployed, from where the jobs stand."""
