"""Small copies of pictures as answers: named by their content, they never change, so a browser asks for each once."""

from typing import Any

from fastapi import Response

HEADERS = {"Cache-Control": "private, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
JPEG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}, "description": "The picture."}
}


def lasting_jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers=HEADERS)
