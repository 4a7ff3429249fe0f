"""Checks of schemathesis: what a server may refuse although /openapi.json allows it.

They replace `positive_data_acceptance` and `not_a_server_error`, which know statuses alone.
"""

import schemathesis


@schemathesis.check
def valid_request_is_accepted(context, response, case):
    """Fail if a request that fits the schema is refused for anything that a schema can say."""
    is_positive = case.meta is not None and case.meta.generation.mode.is_positive
    if is_positive and response.status_code in (400, 413, 415, 422):
        error = response.json()
        assert _is_about_meaning(case.body, error), f"refused: {error}"


@schemathesis.check
def server_does_not_fail(context, response, case):
    """Fail after a status of a server error that the request did not ask for."""
    status, is_short = response.status_code, "X-Request-Timeout" in case.headers
    is_asked_for = (status == 501 and case.path == "/detect") or (status == 504 and is_short)
    assert status < 500 or is_asked_for, response.text


def _is_about_meaning(body, error):
    """Return whether an error says that values make no sense: no image, or two at odds."""
    if "a sentence has at most" in str(error):  # which begin and end where the text says
        return True
    if isinstance(error.get("error"), dict):  # OpenAI: prompts times n
        num_prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
        return error["error"]["param"] in ("n", "prompt") and num_prompts * body.get("n", 1) > 1
    if (field := error.get("field", "")) == "options.n_best":  # at most the beam size
        options = body["options"]
        return options.get("beam_size") is not None and options["n_best"] > options["beam_size"]
    # No schema says what is an image, times in order, a text with a mask, or a constraint that
    # can be met; and two options have ranges that depend on the model: glimpses, token ids.
    return field.startswith("inputs.") or field in ("options.locations", "options.prefix_tokens")
