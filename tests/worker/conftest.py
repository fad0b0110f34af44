"""The worker's tests reach the same real service as the service's own."""

from tests.service.conftest import objects, service

__all__ = ["objects", "service"]
