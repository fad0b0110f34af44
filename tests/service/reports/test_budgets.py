"""Which budgets there are, and what the fleet costs an hour now."""

from typing import Any

import pytest

from tests.service.conftest import OPERATOR, PRICE, PROJECT, Service
from tests.service.experiments.at_work import *  # noqa: F403
