"""What `calve status` finds, as a page for a browser: `calve console`, and `calve status --html`."""
