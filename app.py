"""What the CDK CLI runs in a checkout: `npx cdk deploy`. The app is `stacks/app.py`."""

import sys

from stacks.app import main

if __name__ == "__main__":
    sys.exit(main())
