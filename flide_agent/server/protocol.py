"""HTTP/1.1, where what is no HTTP is refused in the form of every other refusal."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from flide_agent.server.edge import REQUEST_ID, new_request_id
from flide_agent.server.errors import ApiError, reply

_ERROR = ApiError(
    400,
    "api_usage_error",
    "the bytes that came are no HTTP/1.1 request: check what stands between client and server.",
    headers={"connection": "close"},
)


class Protocol(HttpToolsProtocol):
    """One connection. What it cannot parse never reaches the app, so it is refused here."""

    def send_400_response(self, msg: str) -> None:
        """Refuse, and close the connection."""
        response = reply(_ERROR)
        response.headers[REQUEST_ID] = new_request_id()
        lines = [b"HTTP/1.1 400 Bad Request"]
        lines += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        self.transport.close()
