"""What Lambda hands to a function beside the event."""

from aws_lambda_powertools.utilities.typing import LambdaContext

ARN = "arn:aws:lambda:us-east-1:123456789012:function:function"


class Context(LambdaContext):
    """Enough of it for every handler here."""

    def __init__(self, left_s: float = 900) -> None:
        self._left_ms = int(left_s * 1000)
        self._function_name = "function"
        self._memory_limit_in_mb = 128
        self._invoked_function_arn = ARN
        self._aws_request_id = "1"
        self._log_stream_name = "2026/11/21/[1]abc"

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]
        return self._left_ms
