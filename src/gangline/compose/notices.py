"""Where a program hears that its machine is about to be taken away, from `--notice`: a provider, or a file that appears."""

import os
from collections.abc import Callable
from pathlib import Path

from gangline.core.errors import UserError


def check_notice(of: str) -> None:
    """Raise `UserError` if `of` is neither a provider nor a file that may still appear."""
    from gangline.adapters.host.notices import PROVIDERS

    if of in ("", *PROVIDERS):
        return
    file = Path(of)
    if not file.absolute().parent.is_dir():
        raise UserError(f"--notice {file} is neither a provider nor a file", hint="say aws, gcp, azure or a path")
    if file.exists():
        raise UserError(
            f"--notice {file} exists already",
            hint="remove it: this file is the notice that the machine will be taken away",
        )


def make_notice(of: str, say: Callable[[str], None]) -> Callable[[], str]:
    """Return a function that returns the notice, or "" until there is one. `say` receives one warning if the provider does not answer."""
    from gangline.adapters.host.notices import Notices

    return Notices(of, say, os.environ) if of else lambda: ""
