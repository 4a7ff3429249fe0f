"""Other people's clients, documents and heedful's own client, against a real server."""

import json
import subprocess
import sys

import pytest

import heedful
from heedful.client import ServerError
from tests.serving.servers import GOLDEN, START_SECONDS, running

OPTIONS = ["--languages", "letters=de-en", "--token", "secret", "--timeout", START_SECONDS]


@pytest.fixture(scope="module")
def server(tmp_path_factory, trained):
    """Serve a translator that copies letters, and a language model; clients need a token."""
    folder = tmp_path_factory.mktemp("clients")
    models = f"letters={trained}", f"lm={GOLDEN / 'language-modeling'}"
    with running(folder, *models, *OPTIONS) as server:
        yield server


@pytest.fixture
def client(server):
    with_token = heedful.Client(server.url, token="secret")
    yield with_token
    with_token.close()


def post(server, path, body, **headers):
    headers.setdefault("Authorization", "Bearer secret")
    return server.request("POST", path, body, headers)


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        ("/translate", {"q": "a b", "source": "de", "target": "en"}, "application/json"),
        ("/translate", b"q=a+b&source=de&target=en&format=text", FORM),
        ("/translate?q=a%20b&source=de&target=en", b"", FORM),
        ("/translate", b"q=a+b&source=de&target=en&alternatives=0&other=1", FORM),
    ],
)
def test_translate_reads_json_form_and_query(server, path, body, content_type):
    answer = post(server, path, body, **{"Content-Type": content_type})
    assert (answer.status, answer.json) == (200, {"translatedText": "a b"})


def test_translate_keeps_the_shape_of_q_and_has_alternatives(server):
    fields = {"q": ["a b", "c\n\n d"], "source": "auto", "target": "en", "alternatives": 3}
    answer = post(server, "/translate", fields).json
    assert answer["translatedText"] == ["a b", "c\n\n d"]
    assert answer["detectedLanguage"] == {"language": "de", "confidence": 0.0}
    first, second = answer["alternatives"]
    assert 1 <= len(first) <= 3
    assert "a b" not in first
    assert all(text.count("\n\n ") == 1 for text in second)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"alternatives": 10000}, 422, "alternatives: Input should be less than or equal to 10"),
        ({"target": "fr"}, 422, "between these languages; choose from: de-en"),
        ({"q": 3}, 422, "q: Input should be a valid string"),
        ({"q": "a" * 6000}, 422, "a sentence has at most 5,000 characters"),
    ],
)
def test_translate_reports_errors_as_libretranslate_does(server, fields, status, message):
    answer = post(server, "/translate", {"q": "a", "source": "de", "target": "en"} | fields)
    assert answer.status == status
    assert [*answer.json] == ["error"]
    assert message in answer.json["error"]


@pytest.mark.parametrize("choose", [min, pytest.param(max, marks=pytest.mark.slow)])
def test_too_many_alternatives_are_refused_at_once(server, choose):
    """In 50 ms: the fastest of some, as programs wait for cores; on an idle machine all."""

    def count_batches():
        answer = server.get("/metrics", headers={"Authorization": "Bearer secret"})
        return [line for line in answer.body.splitlines() if b"batch_items_count" in line]

    fields = {"q": "a", "source": "de", "target": "en", "alternatives": 10_000}
    before = count_batches()
    answers = [post(server, "/translate", fields) for _ in range(20)]
    assert {answer.status for answer in answers} == {422}
    assert choose(answer.seconds for answer in answers) < 0.05
    assert count_batches() == before


def test_languages_are_those_of_the_runs(server):
    answer = server.get("/languages", headers={"Authorization": "Bearer secret"})
    assert answer.json == [{"code": "de", "name": "German", "targets": ["en"]}]


MANY_FIELDS = b"a=1&" * 100_000
BROKEN = {"no JSON": b"{", "lone surrogate": b'{"q": "\\ud800"}', "NaN": b'{"q": NaN}'}


@pytest.mark.parametrize("path", ["/translate", "/detect", "/v1/completions", "/v1/translate"])
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        *((body, {"Content-Type": "application/json"}, 400) for body in BROKEN.values()),
        (b"[" * 100_000, {"Content-Type": "application/json"}, 400),
        (b"{}", {"Content-Type": "application/json", "Origin": "https://evil.example"}, 403),
        (b"{}", {"Content-Type": "application/json", "Authorization": "Bearer no"}, 401),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
    ],
    ids=[*BROKEN, "nesting", "other site", "wrong token", "plain text", "gzip"],
)
def test_request_that_no_route_sees_gets_an_error_that_its_clients_read(
    server, path, body, headers, status
):
    answer = post(server, path, body, **headers)
    assert (answer.status, len(answer.body) < 1000) == (status, True)
    assert_shape(answer, path)


def assert_shape(answer, path):
    """Check that an error has the shape of LibreTranslate, of OpenAI, or of problem details."""
    kind = answer.headers["content-type"]
    if path in ("/translate", "/detect", "/languages"):
        assert [*answer.json, kind] == ["error", "application/json"]
        assert isinstance(answer.json["error"], str)
    elif path == "/v1/completions":
        assert [*answer.json, kind] == ["error", "application/json"]
        assert answer.json["error"].keys() == {"message", "type", "param", "code"}
    else:
        assert (answer.json["status"], kind) == (answer.status, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/translate", {}),
        ("/translate", {"q": "a", "source": "de", "target": "en", "alternatives": "3"}),
        ("/v1/completions", {}),
        ("/v1/completions", {"model": "lm", "echo": 1}),
        ("/v1/completions", {"model": "lm", "max_tokens": 10**9}),
        ("/v1/documents", {"documents": "a"}),
        ("/v1/documents", {"documents": [""], "options": {"beam_size": 0}}),
        ("/v1/translate", {"inputs": ["a"], "options": {"need_tree": 0}}),
        ("/v1/translate", {"inputs": ["a"], "options": {"beam_size": "3"}}),
        ("/v1/generate", {"inputs": ["a"], "options": {"max_new_tokens": 1e9}}),
    ],
)
def test_invalid_value_gets_an_error_that_its_clients_read(server, path, body):
    answer = post(server, path, body)
    assert answer.status == 422
    assert_shape(answer, path)


def test_form_of_many_fields_is_refused(server):
    answer = post(server, "/translate", MANY_FIELDS, **{"Content-Type": FORM})
    assert answer.status == 400
    assert_shape(answer, "/translate")


def test_api_key_is_the_token(server):
    fields = {"q": "a", "source": "de", "target": "en"}
    body = json.dumps(fields | {"api_key": "secret"}).encode()
    headers = {"Content-Type": "application/json"}
    assert server.request("POST", "/translate", body, headers).status == 200
    assert server.request("POST", "/translate", fields).status == 401
    assert server.request("POST", "/translate", fields | {"api_key": "no"}).status == 401


def test_detect_is_not_implemented(server):
    answer = post(server, "/detect", b"q=a", **{"Content-Type": FORM})
    assert answer.status == 501
    assert [*answer.json] == ["error"]


def test_document_keeps_its_tags(client):
    page = "<h1>a</h1>\n<p>a <b>b c</b> d.<br><code>x</code></p>"
    output = client.translate_document(page, "html")
    assert output.startswith("<h1>a</h1>\n<p>a <b>b c</b> d")
    assert output.endswith("<br><code>x</code></p>")
    assert client.translate_document("a b\n\n\tc") == "a b\n\n\tc"


def test_client_predicts_as_the_run_does(client, trained):
    texts = ["a b c", "h", ""]
    run = heedful.load(trained, device="cpu")
    expected = [result.to_json(weights=False) for result in run.translate(texts, beam_size=3)]
    assert client.translate(texts, options={"beam_size": 3}) == expected
    assert client.translate("a b c")["text"] == "a b c"
    assert [model["id"] for model in client.models()] == ["letters", "lm"]


def test_client_streams_what_it_generates(client):
    options = {"max_new_tokens": 1000, "seed": 5}
    parts = list(client.stream("generate", "the", options=options))
    assert len(parts) > 2  # on a busy machine several tokens are one part
    assert "".join(parts) == client.generate("the", options=options)


def test_client_reports_problems_and_a_missing_token(server, client):
    with pytest.raises(ServerError, match="no model of this name") as error:
        client.translate("a", model="lettres")
    assert error.value.status == 404
    with pytest.raises(ServerError, match="the token is missing or wrong"):
        heedful.Client(server.url, token="other").translate("a")


def complete(server, **fields):
    return post(server, "/v1/completions", {"model": "lm", "prompt": "the", "seed": 3} | fields)


def test_completion_ends_before_a_stop(server):
    whole = complete(server, max_tokens=20).json
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 20
    text = whole["choices"][0]["text"]
    stopped = complete(server, max_tokens=20, stop=text[5:7], echo=True).json
    (choice,) = stopped["choices"]
    assert choice["text"] == "the" + text[: text.index(text[5:7])]
    assert choice["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] < 20


def test_null_is_the_default_of_a_field_of_a_completion(server):
    names = ("max_tokens", "temperature", "top_p", "n", "stop", "echo", "stream", "stream_options")
    nulls = dict.fromkeys(names)
    assert complete(server, **nulls).json["choices"] == complete(server).json["choices"]


def test_completion_of_several_prompts_has_n_choices_each(server):
    answer = complete(server, prompt=["a", "b"], n=2, max_tokens=8).json
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in answer["choices"]]
    assert len(set(texts)) == 4
    assert (
        complete(server, prompt="b", n=1, max_tokens=8, seed=5).json["choices"][0]["text"]
        == (texts[2])
    )


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "x"}, 404, "model"),
        ({"model": None}, 422, "model"),
        ({"logprobs": 2}, 422, "logprobs"),
        ({"n": 3}, 422, "n"),
    ],
)
def test_completion_reports_errors_as_openai_does(server, fields, status, param):
    answer = complete(server, stream="n" in fields, **fields)
    assert (answer.status, answer.json["error"]["param"]) == (status, param)


@pytest.mark.extras
def test_clients_from_pypi_work_unchanged(server):
    """libretranslatepy sends a form, deep-translator a query string, openai JSON."""
    program = f"""
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI
from openai import OpenAI

libre = LibreTranslateAPI("{server.url}", api_key="secret")
assert libre.translate("a b", "de", "en") == "a b"
deep = LibreTranslator("de", "en", api_key="secret", custom_url="{server.url}/")
assert deep.translate("a b") == "a b"
assert deep.translate_batch(["a", "b"]) == ["a", "b"]
client = OpenAI(base_url="{server.url}/v1", api_key="secret")
assert [model.id for model in client.models.list()] == ["letters", "lm"]
options = dict(model="lm", prompt="the", max_tokens=12, seed=3)
text = client.completions.create(**options).choices[0].text
parts = client.completions.create(**options, stream=True)
assert "".join(part.choices[0].text for part in parts) == text
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=START_SECONDS)
