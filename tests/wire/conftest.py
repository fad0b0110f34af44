"""The service that recorded requests are asked of."""

from tests.service.conftest import objects, service

__all__ = ["objects", "service"]
