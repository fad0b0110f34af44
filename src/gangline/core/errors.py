"""Operating errors: what can go wrong although every line of Gangline is right.

    GanglineError
    ├── UserError        what was given is wrong; nothing was started       exit 2, HTTP 4xx
    │   ├── BadInput     … a photo, a prompt, a number, a base              exit 65 in a trainer
    │   ├── Denied       … a key or token: nobody is known by it, or not any more      HTTP 401
    │   ├── Forbidden    … a key or token whose role does not reach so far             HTTP 403
    │   ├── NotFound     … a name or an id
    │   ├── TooLarge     … more bytes than a request may have                          HTTP 413
    │   └── TooSlow      … a request that did not come to its end in time              HTTP 408
    ├── Unreachable      somebody is not there; trying again may help       exit 2, HTTP 503
    │   └── TooMany      … or has been asked too often: it says when to ask again      HTTP 429
    └── Damaged          bytes are not what their SHA-256 says

Expected refusals (`Stale`, `NoWork`) are values, not errors; broken invariants are assertions.
"""

from math import ceil


class GanglineError(Exception):
    """One sentence for people, and where there is one a hint at what to do."""

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


class TooLarge(UserError):
    code = "too-large"


class TooSlow(UserError):
    code = "too-slow"


class Unreachable(GanglineError):
    code = "unreachable"


class TooMany(Unreachable):
    """`wait_s`: after so many seconds the sender may ask again."""

    code = "too-many"

    def __init__(self, message: str, *, hint: str = "", wait_s: float = 1.0) -> None:
        self.wait_whole_s = max(1, ceil(wait_s))
        super().__init__(message, hint=hint or f"try again in {self.wait_whole_s} s")


class Damaged(GanglineError):
    code = "damaged"
