"""Define operating errors: faults that occur although the code is correct.

    GanglineError
    ├── UserError        the input is wrong; nothing was started            exit 2, HTTP 4xx
    │   ├── BadInput     … a photo, a prompt, a number, a base              exit 65 in a trainer
    │   ├── Denied       … a key or token is unknown, expired or revoked               HTTP 401
    │   ├── Forbidden    … the role of a key or token does not permit this             HTTP 403
    │   ├── NotFound     … a name or an id does not exist
    │   ├── InProgress   … the same request is being answered already                  HTTP 409
    │   ├── Changed      … what it is about is no longer as its sender saw it          HTTP 412
    │   ├── TooLarge     … a request has more bytes than allowed                       HTTP 413
    │   └── TooSlow      … a request did not arrive completely in time                 HTTP 408
    ├── Unreachable      a peer does not answer; a retry may help           exit 2, HTTP 503
    │   └── TooMany      … or is asked too often: the error says when to retry         HTTP 429
    ├── Damaged          bytes do not match their SHA-256
    ├── JobFailed        a job that somebody waits for failed or was canceled
    └── WaitTimeout      … has not got so far in the time that they allow; also a `TimeoutError`

Expected refusals (`Stale`, `NoWork`) are values, not errors; broken invariants are assertions.
"""

from math import ceil


class GanglineError(Exception):
    """An error whose message is one sentence for people; `hint` says what to do, and may be empty."""

    code = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(GanglineError):
    code = "invalid"


class BadInput(UserError):
    code = "bad-input"


class Denied(UserError):
    code = "denied"


class Forbidden(UserError):
    code = "forbidden"


class NotFound(UserError):
    code = "not-found"


class InProgress(UserError):
    code = "in-progress"


class Changed(UserError):
    code = "changed"


class TooLarge(UserError):
    code = "too-large"


class TooSlow(UserError):
    code = "too-slow"


class Unreachable(GanglineError):
    code = "unreachable"


class TooMany(Unreachable):
    """A refusal because of too many requests. The sender may retry after `wait_s` seconds."""

    code = "too-many"

    def __init__(self, message: str, *, hint: str = "", wait_s: float = 1.0) -> None:
        self.wait_whole_s = max(1, ceil(wait_s))
        super().__init__(message, hint=hint or f"try again in {self.wait_whole_s} s")


class Damaged(GanglineError):
    code = "damaged"


class JobFailed(GanglineError):
    code = "job-failed"


class WaitTimeout(GanglineError, TimeoutError):
    code = "wait-timeout"
