"""A server that other computers can reach: its token, and the sites whose pages may use it."""

import pytest

from tests.serving.servers import GOLDEN, running

TOKEN, SITE = "open sesame", "https://friend.example"
ASK = {"inputs": ["a b"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    options = ["--host", "0.0.0.0", "--token", TOKEN, "--allowed-origin", SITE]
    with running(tmp_path_factory.mktemp("server"), GOLDEN / "tagging", *options) as server:
        server.host = "127.0.0.1"
        yield server


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("headers", [{}, bearer(""), bearer("open"), {"Authorization": TOKEN}])
def test_request_without_the_token_is_refused(server, headers):
    for answer in (
        server.post("/v1/tag", ASK, headers=headers),
        server.get("/metrics", headers=headers),
        server.get("/v1/models", headers=headers),
    ):
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_request_with_the_token_is_answered(server):
    headers = {**bearer(TOKEN), "Host": "models.example"}
    assert server.post("/v1/tag", ASK, headers=headers).status == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
def test_health_needs_no_token(server, path):
    assert server.get(path).status == 200


def test_page_of_an_allowed_site_may_use_the_server(server):
    asked = {"Origin": SITE, "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type"
    allowed = server.request("OPTIONS", "/v1/tag", headers=asked)
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, SITE)
    answer = server.post("/v1/tag", ASK, headers={**bearer(TOKEN), "Origin": SITE})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, SITE)


def test_page_of_another_site_is_refused_with_the_token(server):
    headers = {**bearer(TOKEN), "Origin": "https://other.example"}
    assert server.post("/v1/tag", ASK, headers=headers).status == 403
