"""`heedful generate`: sample text from a language model; imports no torch."""

import sys
from typing import Annotated

from typer import Argument, Option

from heedful.tasks.command_line import TEXT_FILES, OutputFile, PredictorLoader, check_local
from heedful.terminal import echo, handle_stdout_errors, save_text

_SEPARATOR = "\n----\n"

Prompt = Annotated[
    str, Argument(help="beginning of the text; default: a new line", show_default="")
]
Temperature = Annotated[
    float, Option(min=0, help="below 1 less random; 0 takes the most likely token")
]
TopK = Annotated[int | None, Option(min=1, help="sample among this many most likely tokens")]
TopP = Annotated[float, Option(help="sample among the most likely tokens with this total")]
NumSamples = Annotated[int, Option(min=1, help="number of texts; ---- separates them")]


def generate(
    load: PredictorLoader,
    prompt: Prompt = "",
    *,
    max_new_tokens: Annotated[int, Option(min=1, help="tokens to generate")] = 200,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    seed: Annotated[int, Option(help="random seed")] = 0,
    num_samples: NumSamples = 1,
    output: OutputFile = None,
) -> None:
    """Continue a prompt with a language model, token by token.

    Example: heedful generate runs/shakespeare "To be" --max-new-tokens 400
    Example: heedful generate runs/shakespeare --num-samples 5 --top-p 0.95 -o texts.txt
    """
    check_local(load, {"--num-samples": num_samples > 1})
    generator = load()
    options = generator.options_class(
        max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    if num_samples == 1 and output is None:
        length = 0
        with handle_stdout_errors():
            for result in generator.stream(prompt, options):
                sys.stdout.write(result.text[length:])
                sys.stdout.flush()
                length = len(result.text)
            sys.stdout.write("\n")
        return
    if num_samples == 1:
        texts = list(generator.predict_texts([prompt], options))
    else:
        texts = generator.generate_samples(prompt, num_samples, options)
    if output is not None:
        save_text(output, _SEPARATOR.join(texts) + "\n")
        return
    with handle_stdout_errors():
        echo(_SEPARATOR.join(texts))


FILE_OPTIONS = TEXT_FILES
COMMANDS = (generate,)
