"""Operating errors: what can go wrong although every line of Gangline is right.

    GanglineError
    ├── UserError        what was given is wrong; nothing was started       exit 2, HTTP 4xx
    │   ├── BadInput     … a photo, a prompt, a number, a base              exit 65 in a trainer
    │   ├── Denied       … a key or token: nobody is known by it, or not any more      HTTP 401
    │   ├── Forbidden    … a key or token whose role does not reach so far             HTTP 403
    │   └── NotFound     … a name or an id
    ├── Unreachable      somebody is not there; trying again may help       exit 2, HTTP 503
    └── Damaged          bytes are not what their SHA-256 says

Expected refusals (`Stale`, `NoWork`) are values, not errors; broken invariants are assertions.
"""


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


class Unreachable(GanglineError):
    code = "unreachable"


class Damaged(GanglineError):
    code = "damaged"
