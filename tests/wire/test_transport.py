"""Each fault of transport has its own sentence, and says what to do. Every fault here is a real one, on loopback."""

from pathlib import Path

import pytest
import trustme

from gangline.compose.client import Client
from gangline.core.errors import GanglineError, NotFound, Unreachable
from gangline.tls import trusted
from gangline.train.scratch.launch import free_port
from gangline.wire.problem import of_error
from gangline.wire.transport import proxy_for
from tests.strangers import somebody, speaking_tls

KEY = "gl_member_never-to-be-shown"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def said_of(server: str) -> GanglineError:
    with pytest.raises(GanglineError) as refused:
        list(Client(server, KEY).nodes.list())
    assert KEY not in refused.value.message + refused.value.hint
    return refused.value


def test_nobody_there() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    said = said_of(address)
    assert isinstance(said, Unreachable)
    assert said.message == f"there is no Gangline server at {address} (connection refused)"
    assert "`gangline up`" in said.hint and "GANGLINE_SERVER" in said.hint


def test_no_such_host() -> None:
    said = said_of("http://nowhere.invalid:8420")
    assert said.message.startswith("there is no host nowhere.invalid: ")
    assert "gangline up" not in said.hint


@pytest.mark.parametrize("address", ["127.0.0.1:8420", "localhost", "gangline.example/team"])
def test_no_scheme(address: str) -> None:
    said = said_of(address)
    assert said.message == f"{address} lacks http:// or https://"
    assert said.hint == f"write http://{address}, or https://{address} if it uses TLS"


@pytest.mark.parametrize("address", ["ftp://host", "http://", "http://[::1", "http://host:port"])
def test_no_address(address: str) -> None:
    said = said_of(address)
    assert said.message.startswith(f"{address.rstrip('/')} is not an address")
    assert "http://HOST:PORT" in said.hint


def test_a_certificate_of_an_authority_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    with speaking_tls(authority.issue_cert("localhost")) as port:
        said = said_of(f"https://localhost:{port}")
        assert said.message.startswith(f"the certificate of https://localhost:{port} is not trusted: ")
        assert "`gangline docs tls`" in said.hint and "SSL_CERT_FILE" in said.hint
        authority.cert_pem.write_to_path(tmp_path / "authority.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        assert "not as a Gangline server does" in said_of(f"https://localhost:{port}").message  # reached, and trusted


def test_a_certificate_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    with speaking_tls(authority.issue_cert("elsewhere.example")) as port:
        assert "certificate is not valid for 'localhost'" in said_of(f"https://localhost:{port}").message


def test_certificates_that_are_named_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/authority.pem")
    said = said_of("https://localhost:1")
    assert "the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read" in said.message


def test_certificates_are_read_once_until_the_environment_names_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = trusted()
    assert trusted() is usual
    trustme.CA().cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    assert len(trusted().get_ca_certs()) == 1 < len(usual.get_ca_certs())


def test_https_to_a_server_without_tls() -> None:
    with somebody(200) as server:
        address = f"localhost:{server.server_port}"
        said = said_of(f"https://{address}")
        assert said.message == f"https://{address} does not use TLS"
        assert said.hint == f"try http://{address}"


def test_http_to_a_server_with_tls() -> None:
    with speaking_tls(trustme.CA().issue_cert("localhost")) as port:
        said = said_of(f"http://localhost:{port}")
        assert said.message == f"http://localhost:{port} closed the connection without an answer"
        assert said.hint == f"if it uses TLS, its address is https://localhost:{port}"


def test_http_to_a_proxy_with_tls_that_says_so() -> None:
    with somebody(400, b"<h1>400 Bad Request</h1>The plain HTTP request was sent to HTTPS port") as server:
        said = said_of(f"http://localhost:{server.server_port}")
        assert said.message == f"http://localhost:{server.server_port} uses TLS"
        assert said.hint == f"try https://localhost:{server.server_port}"


def test_a_server_that_hangs_up() -> None:
    with somebody(0) as server:
        said = said_of(f"http://localhost:{server.server_port}")
        assert "closed the connection without an answer" in said.message


@pytest.mark.parametrize("body", [b"<html>nginx</html>", b'{"detail": "Not Found"}', b"[]", b""])
def test_somebody_else_or_a_path_that_is_missing(body: bytes) -> None:
    with somebody(404, body) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        said = said_of(address)
        assert said.message == f"{address} answers, but not as a Gangline server does (HTTP 404)"
        assert "path" in said.hint and "/v1" in said.hint


def test_a_success_that_is_not_ours() -> None:
    with somebody(200, b"<html>Welcome</html>") as server:
        assert "did not answer as a Gangline server does" in said_of(f"http://127.0.0.1:{server.server_port}").message


def test_a_server_that_sends_us_elsewhere() -> None:
    with somebody(301, headers={"Location": "https://gangline.example/v1/jobs"}) as server:
        assert (
            "redirects to https://gangline.example/v1/jobs" in said_of(f"http://127.0.0.1:{server.server_port}").message
        )


@pytest.mark.parametrize(("status", "words"), [(413, "refuses a request of this size"), (502, "failed (HTTP 502)")])
def test_what_a_proxy_before_a_server_says(status: int, words: str) -> None:
    with somebody(status, b"<html></html>") as server:
        assert words in said_of(f"http://127.0.0.1:{server.server_port}").message


def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("HTTP_PROXY", f"http://user:password@{proxy}")
    said = said_of("http://gangline.example")
    assert said.message == (
        f"http://gangline.example cannot be reached through the proxy http://{proxy} (connection refused)"
    )
    assert said.hint.endswith("set NO_PROXY=gangline.example to connect without it")
    monkeypatch.setenv("NO_PROXY", "gangline.example")
    assert proxy_for("http://gangline.example") == ""


def test_a_proxy_that_httpx_cannot_speak_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    assert "SOCKS" in said_of("http://gangline.example").message


def test_a_refusal_that_names_what_no_text_may_have_can_still_be_sent() -> None:
    refused = of_error(NotFound("there is no base a\ud800", hint="there are b\udfff"))
    assert (refused.detail, refused.hint) == (r"there is no base a\ud800", r"there are b\udfff")
