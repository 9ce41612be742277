"""Commands that change a project: init, preview, plan, deploy."""
