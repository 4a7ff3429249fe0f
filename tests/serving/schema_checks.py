"""A check of schemathesis: what a server may refuse although /openapi.json allows it.

It replaces `positive_data_acceptance`, which knows statuses alone.
"""

import schemathesis


@schemathesis.check
def valid_request_is_accepted(context, response, case):
    """Fail if a request that fits the schema is refused for anything that a schema can say."""
    is_positive = case.meta is not None and case.meta.generation.mode.is_positive
    if is_positive and response.status_code in (400, 413, 415, 422):
        error = response.json()
        assert _is_about_meaning(case.body, error), f"refused: {error}"


def _is_about_meaning(body, error):
    """Return whether an error says that values make no sense: no image, or two at odds."""
    if "a sentence has at most" in str(error):
        return True
    if isinstance(error.get("error"), dict):  # OpenAI
        num_prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
        return error["error"]["param"] in ("n", "prompt") and num_prompts * body.get("n", 1) > 1
    if (field := error.get("field", "")) == "options.n_best":
        options = body["options"]
        return options.get("beam_size") is not None and options["n_best"] > options["beam_size"]
    # Of the options, only these two have ranges that depend on the model.
    return field.startswith("inputs.") or field in ("options.locations", "options.prefix_tokens")
