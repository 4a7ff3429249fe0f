"""Pages of other sites, in a real browser, that try to use a server on the reader's computer.

Names that end in .example are this computer: see `ARGUMENTS` in conftest.py.
"""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.browser.inspecting import TIMEOUT

pytestmark = [pytest.mark.wide, pytest.mark.browser]
FORM = '<form method=post action="{url}/translate"><input name=q value="a b"></form>'
FETCH = """
async ([url, options]) => {
    try {
        return (await fetch(url, {method: "POST", body: '{"input": "a b"}', ...options})).type
    } catch (error) {
        return error.name
    }
}
"""


@contextmanager
def serving_page(text):
    """Serve a page from this computer; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments):
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        thread = Thread(target=site.serve_forever)
        thread.start()
        yield site.server_port
        site.shutdown()
        thread.join()


@pytest.fixture
def evil_page(chromium, inspector):
    """Open a page of another site that may send a form."""
    with serving_page(FORM.format(url=inspector.url)) as port:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"http://evil.example:{port}/")
        yield page
        context.close()


def count_work(server):
    """Return how many requests were refused, and how many inputs were predicted."""
    metrics = server.metrics()
    refused = metrics.get('heedful_requests_total{route="other",status="403"}', 0)
    return refused, sum(metrics[name] for name in metrics if "batch_items_sum" in name)


def test_form_of_another_site_is_refused(evil_page, inspector):
    num_refused, num_predicted = count_work(inspector)
    with evil_page.expect_response("**/translate", timeout=TIMEOUT) as answer:
        evil_page.evaluate("document.forms[0].submit()")
    assert answer.value.status == 403
    assert count_work(inspector) == (num_refused + 1, num_predicted)


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({"headers": {"Content-Type": "application/json"}}, "TypeError"),  # the preflight fails
        ({"mode": "no-cors"}, "opaque"),  # as plain text: sent, and never read
    ],
    ids=["JSON", "plain text"],
)
@pytest.mark.parametrize("path", ["/v1/explain", "/v1/translate"])
def test_script_of_another_site_is_refused(evil_page, inspector, path, options, outcome):
    num_refused, num_predicted = count_work(inspector)
    assert evil_page.evaluate(FETCH, [inspector.url + path, options]) == outcome
    assert count_work(inspector) == (num_refused + 1, num_predicted)


def test_name_that_is_bound_to_this_computer_is_refused(chromium, inspector):
    page = chromium.new_page()
    answer = page.goto(f"http://rebound.example:{inspector.port}/")
    assert answer.status == 403
    page.close()
